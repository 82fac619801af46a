"""The explorer in a real Chromium: drawn, walked by keyboard, and in the verifier's own words, on any screen."""

from __future__ import annotations

import re
from dataclasses import replace
from math import dist

import pytest

import poset_environment as posets
from browser_support import DESKTOP, PHONE, keep_screenshot, opened
from explorer_support import MISSING, evil, lines_of, several, without_processes
from vcrt.certificates.episodes import PRESETS
from vcrt.datasets.freezing import make_dataset
from vcrt.orders import all_orders, linear_extensions
from vcrt.printable import printable
from vcrt.replay.config import given
from vcrt_train.protocol.plan import PlannedRun
from vcrt_train.report.explorer import explorer_contents as gathering
from vcrt_train.report.explorer import geometry
from vcrt_train.report.explorer.explorer_contents import gather_explorer
from vcrt_train.report.explorer.explorer_page import render_explorer
from vcrt_train.report.explorer.masses import Mass, RunMasses

pytestmark = pytest.mark.browser
RUN = PlannedRun(method="vcrt", held_out="lines", seed=0)
#: The probability of all legal orders, frozen and after two updates.
LEGAL = (0.5, 0.75, 0.99)


def masses_of(legal_orders, num_orders):
    def mass(legal):
        other = (1 - legal) / (num_orders - len(legal_orders))
        each = legal / len(legal_orders)
        p = [each if order in legal_orders else other for order in all_orders(4)]
        return Mass(
            probabilities=tuple(p),
            legal=legal,
            malformed=0.0,
            answer=(0, 1, 2, 3),
            passes=True,
        )

    return tuple(mass(legal) for legal in LEGAL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pages of a plain dataset, one with a run, hostile text, several pairs, and other numbers of steps."""
    folder = tmp_path_factory.mktemp("pages")
    with without_processes():
        lines, factories = lines_of(4, folder / "lines", episodes=3)
        contents = gather_explorer(lines, factories=factories)
        pages = {"plain": contents, "run": with_run(contents)}
        for name, (dataset, made) in {
            "evil": evil(folder / "evil"),
            "several": several(folder / "several"),
            "three": lines_of(3, folder / "three"),
            "five": lines_of(5, folder / "five", episodes=1),
            "twelve": twelve(folder / "twelve"),
        }.items():
            pages[name] = gather_explorer(dataset, factories=made)
        pages["twelve"] = with_estimates(pages["twelve"])
    for name, some in pages.items():
        (folder / f"{name}.html").write_text(render_explorer(some), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        for module in (gathering, geometry):
            patch.setattr(module, "MAX_DRAWN", 3)
        many = render_explorer(gather_explorer(lines, factories=factories))
    (folder / "many.html").write_text(many, encoding="utf-8")
    return folder


def with_run(contents):
    """The second episode is held out and not evaluated; the others have probabilities."""
    legal = set(linear_extensions(4, [(0, 3)]))
    names = [one.name for one in contents.episodes]
    run = RunMasses(
        run=RUN,
        updates=(0, 50, 100),
        roles=dict(zip(names, ("held out", "closed", "trained on"), strict=True)),
        masses={names[0]: masses_of(legal, 24), names[2]: masses_of(legal, 24)},
    )
    return replace(contents, runs=(run,), report="report.html")


def twelve(path):
    """Two random posets of twelve steps."""
    episodes = [posets.random_episode(12, seed, schema="posets12") for seed in (1, 2)]
    config = given(episodes, preset=PRESETS["posets12"])
    factories = {"posets": posets.Posets}
    return make_dataset(config, path, jobs=1, factories=factories), factories


def with_estimates(contents):
    """A run whose answers go backwards before training and forwards after it."""

    def mass(legal, answer, passes):
        return Mass(
            probabilities=(),
            legal=legal,
            malformed=0.0,
            answer=tuple(answer),
            passes=passes,
            standard_error=0.01,
        )

    masses = (mass(0.02, range(11, -1, -1), False), mass(0.7, range(12), True))
    names = [one.name for one in contents.episodes]
    run = RunMasses(
        run=RUN,
        updates=(0, 50),
        roles=dict.fromkeys(names, "held out"),
        masses=dict.fromkeys(names, masses),
    )
    return replace(contents, runs=(run,))


def places(page):
    """Where the vertices stand, in pixels, by order."""
    return page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll(".vertex[data-order]")].map((v) => {
             const { e, f } = v.transform.baseVal[0].matrix;
             return [v.dataset.order, [e, f]];
           }))"""
    )


def radius(page, order):
    return float(page.locator(f'[data-order="{order}"] .disc').get_attribute("r"))


def focused(page):
    return page.evaluate("document.activeElement.dataset.order ?? document.activeElement.id")


def no_violations(page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize(
    ("name", "dark"),
    [
        *[("run", False), ("run", True), ("several", True), ("five", False), ("many", True)],
        *[("twelve", False), ("twelve", True)],
    ],
)
def test_it_is_drawn_without_errors_and_accessible(folder, name, dark):
    with opened(folder / f"{name}.html", dark=dark) as page:
        if name not in ("many", "twelve"):
            page.locator("#all-orders summary").click()
        assert page.locator("h1").is_visible()
        num_orders = {"five": 120, "many": 0, "twelve": 0}.get(name, 24)
        num_swaps = {"five": 240, "many": 0, "twelve": 0}.get(name, 36)
        assert page.locator(".vertex[data-order]").count() == num_orders
        assert page.locator(".swap[data-swap]").count() == num_swaps
        no_violations(page)
        keep_screenshot(page, f"explorer-{name}-{'dark' if dark else 'light'}")


def test_certified_swaps_are_solid_and_anti_diamonds_broken(folder):
    with opened(folder / "plain.html") as page:
        dash = "(line) => getComputedStyle(line).strokeDasharray"
        for kind, number in (("diamond:not(.beyond)", 15), ("precedes", 6)):
            lines = page.locator(f".swap[data-swap].{kind} .line")
            assert lines.count() == number
            broken = {lines.nth(k).evaluate(dash) != "none" for k in range(number)}
            assert broken == {kind == "precedes"}
        assert page.locator(".vertex[data-order].legal").count() == 12


def test_vertices_do_not_overlap_and_the_halves_are_pulled_apart(folder):
    for size in (DESKTOP, PHONE):
        with opened(folder / "plain.html", size=size) as page:
            at = places(page)
            legal = {"".join(map(str, o)) for o in linear_extensions(4, [(0, 3)])}
            apart = [dist(at[a], at[b]) for a in at for b in at if a < b]
            assert min(apart) > (24 if size == PHONE else 50)
            gap = min(at[o][0] for o in at if o not in legal) - max(at[o][0] for o in legal)
            page.locator("#pull").fill("100")
            at = places(page)
            wider = min(at[o][0] for o in at if o not in legal) - max(at[o][0] for o in legal)
            assert wider > gap > 0


def test_the_keyboard_walks_along_swaps(folder):
    with opened(folder / "plain.html") as page:
        page.locator('[role="option"][tabindex="0"]').focus()
        assert focused(page) == "0123"
        for key, order in (
            ("1", "1023"),
            ("2", "1203"),
            ("2", "1023"),
            ("3", "1032"),
            ("Home", "0123"),
        ):
            page.keyboard.press(key)
            assert focused(page) == order
        assert page.locator('[role="option"][tabindex="0"]').count() == 1
        for key, axis, sign in (("ArrowRight", 0, 1), ("ArrowLeft", 0, -1), ("ArrowDown", 1, 1)):
            before = places(page)[focused(page)]
            page.keyboard.press(key)
            after = places(page)[focused(page)]
            assert sign * (after[axis] - before[axis]) > 5
        page.keyboard.press("Home")
        before = places(page)
        page.keyboard.press("Shift+ArrowLeft")
        assert focused(page) == "0123"
        assert places(page) != before
        page.locator("#reset").press("Enter")
        assert places(page) == before


def test_an_order_that_fails_says_where_and_why(folder):
    with opened(folder / "plain.html") as page:
        page.locator('[data-order="3012"]').hover()
        text = page.locator("#order").inner_text()
        assert "not legal" in text
        assert "v0 is not defined" in text
        page.mouse.move(0, 0)
        assert "Order 0 1 2 3" in page.locator("#order").inner_text()
        page.locator('[data-order="3012"]').click()
        page.mouse.move(0, 0)
        assert "Order 3 0 1 2" in page.locator("#order").inner_text()
        assert page.url.endswith("order=3012")


@pytest.mark.parametrize("way", ["hover", "focus", "click", "Enter"])
def test_the_evidence_of_a_pair_on_hover_focus_and_click(folder, way):
    with opened(folder / "plain.html") as page:
        box, edge = page.locator("#pair"), page.locator('[data-pair="0-1"]')
        assert "v0 is not defined" in box.inner_text()
        if way == "Enter":
            edge.focus()
            page.keyboard.press("Enter")
            page.locator("#next").focus()
        else:
            getattr(edge, way)()
        assert "a diamond, they commute" in box.inner_text()
        assert "both end in state" in box.inner_text()
        hashes = box.locator("td code").all()
        assert len(hashes) == 4 * box.locator("tr.start").count()
        assert re.fullmatch("[0-9a-f]{64}", hashes[0].get_attribute("title"))
        page.mouse.move(0, 0)
        page.locator("#next").focus()
        kept = "commute" in box.locator("h3").inner_text()
        assert kept == (way in ("click", "Enter"))


def test_hovering_a_swap_shows_its_pair_in_its_context(folder):
    with opened(folder / "plain.html") as page:
        page.locator('[data-swap="0132-0312"] .hit').dispatch_event("pointerenter")
        page.locator('[data-swap="0132-0312"]').dispatch_event("pointerenter")
        assert page.locator("#pair h3").inner_text().startswith("Steps 1 and 3")
        assert page.locator("#pair tr.here th").inner_text().startswith("0\n")


def test_choosing_an_episode_changes_picture_steps_and_address(folder):
    with opened(folder / "several.html") as page:
        before = places(page), page.locator("#lead").inner_text()
        page.locator("#next").click()
        assert (places(page), page.locator("#lead").inner_text()) != before
        name = page.locator("#episode").evaluate("(s) => s.selectedOptions[0].text")
        assert f"/{name}" in page.url
        address = page.url
        page.locator("#episode").select_option(index=0)
        assert page.locator("#lead").inner_text() == before[1]
        page.evaluate("(hash) => { location.hash = hash; }", address.partition("#")[2])
        page.wait_for_timeout(50)
        assert page.locator("#episode").evaluate("(s) => s.selectedOptions[0].text") == name


def test_mass_moves_with_the_checkpoint(folder):
    with opened(folder / "run.html") as page:
        legal, other = "0123", "3012"
        assert page.locator("#stops input:checked").get_attribute("value") == "2"
        ratio = (radius(page, legal) / radius(page, other)) ** 2
        assert ratio == pytest.approx(0.99 / 0.01, rel=0.02)
        page.locator("#stops input").first.focus()
        page.locator("#stops input").first.check(force=True)
        assert radius(page, legal) == pytest.approx(radius(page, other))
        assert "Z+ 50.0% before training" in page.locator("#mass").inner_text()
        page.keyboard.press("ArrowRight")
        assert "Z+ 75.0% after 50 updates" in page.locator("#mass").inner_text()
        assert "update=50" in page.url
        page.locator("#all-orders summary").click()
        table = page.locator("#order-table")
        # The table is filled when the browser says that it was opened, a moment after the click.
        table.locator("tbody tr").nth(23).wait_for()
        assert table.locator("tbody tr").count() == 24
        assert "99.0%" in table.locator("tfoot").inner_text()
        assert page.locator("header a").get_attribute("href") == "report.html"


def test_what_is_held_out_and_not_evaluated_has_no_discs_of_probability(folder):
    with opened(folder / "run.html") as page:
        page.locator("#next").click()
        assert "stays closed" in page.locator("#mass").inner_text()
        assert not page.locator("#stops").is_visible()
        assert radius(page, "0123") == radius(page, "3012")
        page.locator("#next").click()
        assert "Z+ 99.0%" in page.locator("#mass").inner_text()


def test_an_address_leads_to_episode_run_update_and_order(folder):
    with opened(folder / "run.html") as page:
        name = page.evaluate(
            "JSON.parse(document.getElementById('data').textContent).episodes[2].id"
        )
        where = f"episode={name}&run=vcrt/lines/0&update=50&order=3021"
        page.evaluate("(hash) => { location.hash = hash; }", where)
        page.wait_for_timeout(50)
        assert "Z+ 75.0%" in page.locator("#mass").inner_text()
        assert "Order 3 0 2 1" in page.locator("#order").inner_text()
        page.evaluate("location.hash = 'episode=%E0%A4%A&update=x&order=9'")
        page.wait_for_timeout(50)
        assert "Order 0 1 2 3" in page.locator("#order").inner_text()


def test_hostile_text_is_shown_and_does_nothing(folder):
    with opened(folder / "evil.html") as page:
        assert page.locator("script").count() == 2
        assert printable(MISSING) in page.locator("#pair pre").inner_text()
        assert "</script><script>alert" in page.locator("#step-list").inner_text()
        page.locator("summary", has_text="Where this episode").click()
        assert "more characters" in page.locator("#initial").inner_text()


@pytest.mark.parametrize("name", ["run", "evil", "five", "three", "twelve"])
def test_a_phone_scrolls_one_way_only(folder, name):
    with opened(folder / f"{name}.html", size=PHONE) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        if name == "run":
            no_violations(page)
            keep_screenshot(page, "explorer-phone")


def test_what_is_too_much_to_draw_is_said(folder):
    with opened(folder / "many.html") as page:
        assert "24 orders of 4 steps are too many" in page.locator("#solid").inner_text()
        assert not page.locator("#view").is_visible()
        assert "v0 is not defined" in page.locator("#pair").inner_text()


def test_a_long_episode_has_its_partial_order_and_the_answer_step_by_step(folder):
    with opened(folder / "twelve.html") as page:
        required = page.evaluate(
            """() => JSON.parse(document.getElementById("data").textContent).episodes[0].relations
                 .filter(([, , kind]) => kind === "precedes" || kind === "conflicts")"""
        )
        drawn = page.locator(".poset")
        label = drawn.get_attribute("aria-label")
        assert all(f"{a} before {b}" in label for a, b, _ in required)
        # Arrows lead forwards, and none of them follows from others.
        pairs = {(a, b) for a, b, _ in required}
        covers = [
            (a, b)
            for a, b in pairs
            if not any((a, c) in pairs and (c, b) in pairs for c in range(12))
        ]
        assert drawn.locator(".relation").count() == len(covers)
        bound = {step for pair in pairs for step in pair}
        assert drawn.locator(".node").count() == len(bound)
        assert page.locator("#solid .badge").count() == 12 - len(bound)
        places = dict(
            zip(
                drawn.locator(".node text").all_text_contents(),
                [float(x.get_attribute("cx")) for x in drawn.locator(".node circle").all()],
                strict=True,
            )
        )
        assert all(places[str(a)] < places[str(b)] for a, b in pairs)
        assert "orders keep the certified relations" in page.locator("#lead").inner_text()
        assert "standard error 1.00%" in page.locator("#mass").inner_text()
        # Its contexts were sampled: what a replay of the order would say is not known.
        assert page.locator("#order .tag").inner_text() == "keeps the certified relations"
        page.locator("#stops input").first.check()
        assert page.locator("#order .tag").inner_text() == "breaks a certified relation"
        assert page.locator("#order .early").count() == len({b for _, b in pairs})


def test_nothing_moves_for_who_wants_less_motion(folder):
    with opened(folder / "run.html", reduced_motion="reduce") as page:
        disc = page.locator('[data-order="0123"] .disc')
        assert disc.evaluate("(d) => getComputedStyle(d).transitionDuration") == "0s"
