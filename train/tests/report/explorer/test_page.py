"""The explorer's page: what is on it, that hostile text stays text, and that it is small and the same each time."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256

import pytest

import vcrt
import vcrt_train
from explorer_support import BREAKS_OUT, evil, lines_of, several, without_processes
from report_support import Page
from shop import Shop
from vcrt.certificates.certificates import certificates
from vcrt.certificates.replay_tree import EpisodeReplays
from vcrt.cli.main import main
from vcrt.datasets.agreement import verify_agreement
from vcrt.errors import DatasetError, VcrtError
from vcrt.orders import all_orders
from vcrt.records.audit import certified_from_row
from vcrt.records.dataset import read_audit
from vcrt_train.report.explorer import explorer_contents as gathering
from vcrt_train.report.explorer.episodes import MAX_CHARACTERS, embedded, shown_text
from vcrt_train.report.explorer.explorer_contents import gather_explorer
from vcrt_train.report.explorer.explorer_page import page_json, render_explorer
from vcrt_train.report.explorer.geometry import swaps


@pytest.fixture(scope="module", autouse=True)
def quick():
    with without_processes():
        yield


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    return lines_of(4, tmp_path_factory.mktemp("explorer") / "lines", episodes=3)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return evil(tmp_path_factory.mktemp("explorer") / "evil")


def rendered(made, **options):
    dataset, factories = made
    return render_explorer(gather_explorer(dataset, factories=factories, **options))


def data_of(html):
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    return json.loads(text)


def test_the_page_is_well_formed_and_asks_no_network(lines):
    html = rendered(lines)
    page = Page(html.replace(re.search(r"<script>(.*?)</script>", html, re.S)[1], ""))
    assert len(page.ids) == len(set(page.ids))
    outside = [v for tag, name, v in page.attributes if name in ("src", "href") and "//" in v]
    assert outside == []
    assert not {"link", "iframe", "img", "object", "base"} & {t for t, _, _ in page.attributes}
    # No element has a style or a handler of its own: the policy would refuse it.
    assert not [name for _, name, _ in page.attributes if name == "style" or name.startswith("on")]
    assert "fetch(" not in html
    assert "innerHTML" not in html
    assert "url(" not in html
    assert "@import" not in html
    assert "prefers-color-scheme: dark" in html
    assert "prefers-reduced-motion" in html


def test_the_policy_names_the_digests_of_the_one_script_and_the_one_style(lines):
    html = rendered(lines)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    policy = policy.replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; ")
    for kind, tag in (("script", "script"), ("style", "style")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.S)
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_hostile_text_stays_text(hostile):
    html = rendered(hostile)
    assert html.count("</script>") == 2
    assert html.count("<script") == 2
    assert "<!--" not in html.replace("<!-- made by `vcrt explore` -->", "", 1)
    assert "\u2028" not in html
    assert "\u202e" not in html
    assert "\x1b" not in html
    (first, _) = data_of(html)["episodes"]
    text = json.dumps(first)
    assert text.count("</script><script>alert") >= 4
    assert "\\u202e" in first["messages"][0]


@pytest.mark.parametrize("text", ["</script>", "<!--<script>", "\u2028&amp;", "\ud800"])
def test_embedded_json_says_the_same_and_ends_nothing(text):
    value = {"a": [text, 1, None]}
    inside = embedded(value)
    assert not set("<>&\u2028\u2029") & set(inside)
    assert json.loads(inside) == value


def test_numbers_that_json_does_not_have_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        embedded(float("nan"))


def test_long_text_is_cut_and_says_so():
    shown = shown_text("x" * (MAX_CHARACTERS + 7) + BREAKS_OUT)
    assert len(shown) < MAX_CHARACTERS + 50
    assert "more characters)" in shown
    assert shown_text("a\n\tb\u202e") == "a\n\\tb\\u202e"


def test_equal_contents_give_equal_bytes(lines, tmp_path):
    dataset, factories = lines
    for name in ("one.html", "other.html"):
        vcrt_train.explore(dataset, tmp_path / name, environments=factories)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "other.html").read_bytes()
    assert str(tmp_path) not in (tmp_path / "one.html").read_text()


def test_every_order_says_what_its_replay_said(lines):
    dataset, _ = lines
    shown = {one["id"]: one for one in data_of(rendered(lines))["episodes"]}
    for row in read_audit(dataset, "lines"):
        certified = certified_from_row(row, dataset.manifest.preset)
        episode = shown[row["episode_id"]]
        orders = dict(zip(all_orders(4), episode["orders"], strict=True))
        for replay in certified.replays:
            legal, answers = orders[replay.sequence]
            assert bool(legal) == (replay.sequence in certified.orbit)
            hashes = [episode["hashes"][a] for a in answers if a >= 0]
            assert hashes == list(replay.state_hashes[1:])
            refused = [episode["messages"][-1 - a] for a in answers if a < 0]
            assert refused == ([] if replay.rejection is None else [replay.rejection.reason])
        assert [tuple(r) for r in episode["relations"]] == [
            (r.first, r.second, r.kind) for r in certified.relations
        ]


def test_every_swap_points_to_its_own_certificate(lines):
    dataset, _ = lines
    (episode, *_) = data_of(rendered(lines))["episodes"]
    (row, *_) = [r for r in read_audit(dataset, "lines") if r["episode_id"] == episode["id"]]
    certified = certified_from_row(row, dataset.manifest.preset)
    local = {
        (c.pair, c.context): c
        for c in certificates(EpisodeReplays.of_every_order(certified.episode, certified.replays))
    }
    seen = set()
    for (here, _, position), place in zip(swaps(4), episode["swaps"], strict=True):
        order = all_orders(4)[here]
        pair, context = tuple(sorted(order[position : position + 2])), order[:position]
        if place is None:
            assert (pair, context) not in local
            continue
        shown = episode["pairs"][place[0]]
        at, certificate = shown["contexts"][place[1]], local[(pair, context)]
        assert (tuple(shown["steps"]), tuple(at["after"])) == (pair, context)
        assert at["verdict"] == certificate.verdict
        assert episode["hashes"][at["hash"]] == certificate.context_hash
        seen.add(certificate.verdict)
    assert seen == {"diamond", "precedes", "vacuous"}


def test_several_required_pairs_and_their_pictures(tmp_path):
    data = data_of(rendered(several(tmp_path / "several")))
    for episode in data["episodes"]:
        required = [f"{a}-{b}" for a, b, kind in episode["relations"] if kind != "commutes"]
        assert episode["drawing"] == " ".join(sorted(required))
        assert len(data["drawings"][episode["drawing"]]["points"]) == 24
        assert sum(legal for legal, _ in episode["orders"]) == episode["numLegal"] <= 8
    assert {p["kind"] for e in data["episodes"] for p in e["pairs"]} >= {"diamond", "conflicts"}


@pytest.mark.parametrize("n", [3, 5])
def test_other_numbers_of_steps(n, tmp_path):
    data = data_of(rendered(lines_of(n, tmp_path / "data", episodes=1)))
    (episode,) = data["episodes"]
    (drawn,) = data["drawings"].values()
    assert len(episode["orders"]) == len(drawn["points"]) == len(data["orders"])
    assert not drawn["turns"]


def test_the_page_says_how_many_of_how_many_and_whether_they_were_verified(lines):
    dataset, factories = lines
    html = rendered(lines, per_schema=2)
    assert "2 of 3 episodes of the dataset" in html
    assert "has not been verified" in html
    verify_agreement(dataset, jobs=1, factories=factories)
    assert "72 of 72 agree" in rendered(lines)
    assert "all 3 episodes of the dataset" in rendered(lines)


def test_no_more_episodes_than_there_is_room_for(lines, monkeypatch):
    monkeypatch.setattr(gathering, "ROOM", 17_000)
    contents = gather_explorer(lines[0], factories=lines[1])
    assert len(contents.episodes) == 2
    assert any("no room for 1 more episode" in note for note in contents.notes)
    monkeypatch.setattr(gathering, "ROOM", 1)
    assert len(gather_explorer(lines[0], factories=lines[1]).episodes) == 1


def test_room_is_counted_in_bytes_of_the_page(hostile, monkeypatch):
    contents = gather_explorer(hostile[0], factories=hostile[1])
    size = len(embedded(contents.episodes[0].shown).encode())
    assert size < 60_000
    monkeypatch.setattr(gathering, "ROOM", 2 * size - 100)
    assert len(gather_explorer(hostile[0], factories=hostile[1]).episodes) == 1


def test_named_episodes_alone(lines):
    names = [row["episode_id"] for row in read_audit(lines[0], "lines")]
    contents = gather_explorer(lines[0], episodes=[names[2], names[0]], factories=lines[1])
    assert [one.name for one in contents.episodes] == [names[0], names[2]]
    with pytest.raises(DatasetError, match="no episode"):
        gather_explorer(lines[0], episodes=["lines/needs/1"], factories=lines[1])


def test_an_environment_that_is_not_installed_leaves_the_signatures(lines):
    contents = gather_explorer(lines[0])
    assert contents.episodes[0].shown["steps"][0] == ["write v0", ""]


def test_only_an_earlier_explorer_is_replaced(lines, tmp_path):
    dataset, factories = lines
    page = tmp_path / "new" / "explorer.html"
    vcrt_train.explore(dataset, page, environments=factories)
    vcrt_train.explore(dataset, str(page), environments=factories, episodes=1)
    assert "1 of 3 episodes" in page.read_text()
    page.write_text("my notes")
    for place in (page, tmp_path):
        with pytest.raises(VcrtError, match="something else"):
            vcrt_train.explore(dataset, place, environments=factories)
    assert page.read_text() == "my notes"


def test_the_command_links_to_a_report_beside_the_page(lines, tmp_path, capsys):
    (tmp_path / "report.html").write_text("a report")
    page = tmp_path / "explorer.html"
    main(["explore", str(lines[0].path), "--output", str(page), "--episodes", "1"])
    assert 'href="report.html"' in page.read_text()
    assert "1 of 3 episodes" in capsys.readouterr().out
    main(["explore", str(lines[0].path), "--output", str(tmp_path / "other" / "page.html")])
    assert "report.html" not in (tmp_path / "other" / "page.html").read_text()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--episodes", "0"], "too few"),
        (["lines/needs/1", "--episodes", "2"], "which episodes"),
        (["--run", "vcrt/clrs/0"], "of which experiment"),
    ],
)
def test_options_that_do_not_go_together(lines, tmp_path, capsys, options, what):
    with pytest.raises(SystemExit) as stopped:
        main(["explore", str(lines[0].path), *options, "--output", str(tmp_path / "page.html")])
    assert stopped.value.code == 2
    assert what in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_orders_are_drawn_where_the_page_has_episodes_of_one_length(tmp_path):
    """Also of a dataset that may hold several lengths, as those of logs do."""
    looks = [{"name": "look", "arguments": {"item": item}} for item in ("tea", "rice", "salt")]
    delivered = {"name": "deliver", "arguments": {"item": "tea", "amount": 2}}
    log = tmp_path / "trace.jsonl"
    log.write_text(
        "\n".join(json.dumps({"calls": calls}) for calls in (looks, [*looks, delivered]))
    )
    lifted = vcrt.lift_log([log], environment=Shop, output=tmp_path / "data", jobs=1)
    three, four = (calls.episode.episode_id for calls in lifted.calls)
    factories = {"shop": Shop}
    both = gather_explorer(lifted.dataset, factories=factories)
    assert [one.drawing for one in both.episodes] == [None, None]
    assert any("equally many steps: name such episodes" in note for note in both.notes)
    for name, steps, orders in ((three, 3, 6), (four, 4, 24)):
        page = page_json(gather_explorer(lifted.dataset, episodes=[name], factories=factories))
        assert (page["n"], len(page["orders"])) == (steps, orders)
        (shown,) = page["episodes"]
        assert shown["drawing"] in page["drawings"]
        assert len(shown["orders"]) == orders


@pytest.mark.parametrize(
    ("episodes", "words"), [(1, "the only episode of the dataset,"), (2, "all 2 episodes of")]
)
def test_the_number_of_episodes_is_said_in_words_that_fit_it(episodes, words, tmp_path):
    dataset, factories = lines_of(3, tmp_path / "lines", episodes=episodes)
    assert words in render_explorer(gather_explorer(dataset, factories=factories))
