"""Curves and figures: what is averaged, what is left out, and where a line stands."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from report_support import (
    synthetic_contents,
)
from sampled_training import train
from vcrt_train.protocol.source_validation import RATE, VARIANCE
from vcrt_train.report.analysis import analyse
from vcrt_train.report.charts import (
    DARK,
    LIGHT,
    WIDTH,
    LineChart,
    Panel,
    RowChart,
    as_drawn,
    column,
    method_styles,
    padded,
    tens,
    to_files,
    to_svg,
)
from vcrt_train.report.contents import ReportContents
from vcrt_train.report.curve_figures import (
    LOG_MARGIN,
    curve_figures,
    curve_points,
    known_quantities,
    quantities,
    value_of,
)
from vcrt_train.report.figures import difference_figure, pass_rate_figure, retention_figure


@pytest.fixture(scope="module")
def contents() -> ReportContents:
    return synthetic_contents()


SVG = "{http://www.w3.org/2000/svg}"


def linear(color: str) -> np.ndarray:
    """Linear RGB of ``#rrggbb``."""
    channels = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize(
    ("colors", "grounds"), [(LIGHT, ("#ffffff", "#f4f6f8")), (DARK, ("#14181b", "#1d2327"))]
)
def test_colors_can_be_seen_on_their_grounds(colors, grounds) -> None:
    def luminance(color: str) -> float:
        return float(np.dot([0.2126, 0.7152, 0.0722], linear(color)))

    for color in colors:
        for ground in grounds:
            high, low = sorted((luminance(color), luminance(ground)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 3, (color, ground)


#: What dichromats see, in linear RGB. Source: Machado, Oliveira and Fernandes (2009), severity 1.
VISION = {
    "usual": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("colors", [LIGHT, DARK])
def test_colors_are_apart_for_any_colour_vision(colors, vision: str) -> None:
    """At least 0.07 in OKLab, where 0.02 is about what can just be told apart."""
    lms = np.array([[0.412, 0.536, 0.051], [0.212, 0.681, 0.107], [0.088, 0.282, 0.630]])
    lab = np.array([[0.210, 0.794, -0.004], [1.978, -2.429, 0.451], [0.026, 0.783, -0.809]])
    seen = [np.clip(np.asarray(VISION[vision]) @ linear(color), 0, 1) for color in colors]
    places = [lab @ np.cbrt(lms @ color) for color in seen]
    apart = [np.linalg.norm(a - b) for k, a in enumerate(places) for b in places[:k]]
    assert min(apart) > 0.07


def places(drawn: str, kind: str) -> list[tuple[float, float, ElementTree.Element]]:
    """The elements of a kind with where they are put in their group."""
    found = []
    for one in ElementTree.fromstring(drawn).iter(f"{SVG}{kind}"):
        at = re.match(r"translate\(([^,]+),([^,]+)\)", one.get("transform", ""))
        found += [(float(at[1]), float(at[2]), one)] if at else []
    return found


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((0.0, 1.0), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ((-0.11, 0.05), ["-0.10", "-0.05", "0.00", "0.05"]),
        ((0.0, 3e-7), ["0", "5e-8", "1e-7", "1.5e-7", "2e-7", "2.5e-7", "3e-7"]),
        ((-9e6, 0.0), ["-8e+6", "-6e+6", "-4e+6", "-2e+6", "0"]),
        ((40.0, 100.0), ["40", "50", "60", "70", "80", "90", "100"]),
    ],
)
def test_ticks_are_round_and_as_the_values_are(ends, expected) -> None:
    chart = LineChart(lines={0: ()}, x_domain=(7.0, 8.0), y_domain=ends)
    drawn = to_svg(Panel(name="ticks", title="Ticks", description="Ticks", chart=chart))
    marks = [
        (-y, one.text) for x, y, one in places(drawn, "text") if one.get("text-anchor") == "end"
    ]
    assert [words for _, words in sorted(marks)] == expected


def test_domains_have_room_and_hold_zero_or_stay_within_percent() -> None:
    assert padded(0.2, 1.0) == pytest.approx((0.0, 1.05))
    assert padded(-1.0, -0.5) == pytest.approx((-1.05, 0.0))
    assert padded(0.0, 0.0) == (0.0, 1.0)
    assert padded(-1e-9, 1.0) == pytest.approx((0.0, 1.05))
    # An interval that crosses zero by a little is drawn as crossing it.
    assert padded(-0.07, 8.0)[0] < -0.07
    assert tens([55.0, 99.5]) == (50.0, 100.0)
    assert tens([0.0, 57.9]) == (0.0, 60.0)
    assert tens([51.0]) == (40.0, 60.0)


def test_curves_average_bins_and_runs() -> None:
    contents = synthetic_contents(rates={"vcrt": (0.9,)}, folds=("lean",), num_updates=130)
    points = curve_points(contents, "mean_reward")["vcrt", "lean"]
    assert len(points) == 43  # 130 updates in bins of 3, the last of 4
    values = np.array([[row["mean_reward"] for row in run.curve] for run in contents.runs])
    first = values[:, :3].mean(axis=1)
    assert points[0].x == 2.0
    assert points[0].y == pytest.approx(first.mean())
    assert (points[0].low, points[0].high) == pytest.approx((first.min(), first.max()))
    assert points[-1].x == 128.5
    assert points[-1].y == pytest.approx(values[:, 126:].mean())


def test_values_that_are_not_finite_are_left_out() -> None:
    contents = synthetic_contents(rates={"vcrt": (0.9,)}, folds=("lean",), num_runs=1)
    row = {"update": 1.0, "loss": float("nan"), "orbit_mass": float("inf"), "unknown": 1.0}
    contents = replace(contents, runs=(replace(contents.runs[0], curve=(row,)),))
    assert curve_points(contents, "loss") == {}
    assert quantities(contents) == ("orbit_mass", "loss")
    figures = curve_figures(contents)
    assert [figure.name for figure in figures] == ["curve-orbit-mass", "curve-loss"]
    for figure in figures:
        (remark,) = [
            at for at in places(to_svg(figure.panels[0]), "text") if at[2].text == "not logged"
        ]
        assert remark[:2] == pytest.approx((146, 75), abs=5)


def test_every_logged_metric_has_a_title() -> None:
    _, (metrics,) = train("vcrt", 1)
    logged = {*metrics.to_json(), LOG_MARGIN, RATE, *VARIANCE.values()}
    assert logged == {"update", *known_quantities()}
    assert all(quantity.title for quantity in known_quantities().values())


def test_the_pass_rate_figure_draws_chance(contents: ReportContents) -> None:
    """The dotted line of 5 of 24 stands at that share of the axis; that of the frozen backbone is dashed."""
    rare = replace(contents, dataset={**contents.dataset, "orbit_size": 5}, runs=contents.runs[:1])
    figure = pass_rate_figure(analyse(rare))
    assert "Dotted: a random order (20.83%)." in figure.caption
    (panel,) = figure.panels
    assert isinstance(panel.chart, RowChart)
    drawn = to_svg(panel)
    dashed = {
        one.attrib["stroke-dasharray"]: x
        for x, _, one in places(drawn, "line")
        if "stroke-dasharray" in one.attrib
    }
    ends = {float(e.text): x for x, _, e in places(drawn, "text") if e.text and e.text.isdigit()}
    low, high = min(ends), max(ends)
    frozen = float(np.mean(rare.frozen["lean"].held_out_passes))
    for dash, rate in (("6,3", frozen), ("1,3", 5 / 24)):
        share = (dashed[dash] - ends[low]) / (ends[high] - ends[low])
        assert low + share * (high - low) == pytest.approx(100 * rate, abs=0.05)


def test_the_margin_follows_from_the_masses() -> None:
    row = {"orbit_mass": 0.8, "illegal_mass": 0.2}
    assert value_of(row, LOG_MARGIN) == pytest.approx(np.log(4))
    # What is too small for float32 stays in the mean, at the smallest number that there is.
    row = {"orbit_mass": 1.0, "illegal_mass": 0.0}
    assert value_of(row, LOG_MARGIN) == pytest.approx(126 * np.log(2))
    assert np.isnan(value_of({"orbit_mass": 1.0}, LOG_MARGIN))
    assert np.isnan(value_of({"orbit_mass": 0.8}, LOG_MARGIN))


def with_constraint(contents: ReportContents) -> ReportContents:
    """Runs whose commutation multiplier is 0.5, under a plan with a cap of 0.3 and a margin of 2."""
    runs = tuple(
        replace(run, curve=tuple({**row, "dual_commutation": 0.5} for row in run.curve))
        for run in contents.runs
    )
    objective = {"commutation_cap": 0.3, "margin": 2.0}
    return replace(contents, runs=runs, plan={**contents.plan, "config": {"objective": objective}})


def test_a_constraint_stands_with_its_cap_and_its_multiplier(contents: ReportContents) -> None:
    figures = {figure.name: figure for figure in curve_figures(with_constraint(contents))}
    assert "curve-dual-commutation" not in figures
    figure = figures["curve-commutation"]
    assert len(figure.panels) == 2 * len(contents.folds)
    for panel in figure.panels[:3]:
        assert isinstance(panel.chart, LineChart)
        assert [(r.value, r.label) for r in panel.chart.references] == [(0.3, "cap 0.3")]
        assert panel.chart.y_domain[1] >= 0.3
    for panel in figure.panels[3:]:
        assert isinstance(panel.chart, LineChart)
        assert "multiplier" in panel.title
        assert {p.y for line in panel.chart.lines.values() for p in line} == {0.5}
    (margin,) = {r.label for p in figures["curve-log-margin"].panels for r in p.chart.references}
    assert margin == "margin 2"
    # Without a plan that names it, no line is drawn.
    without = {figure.name: figure for figure in curve_figures(contents)}["curve-commutation"]
    assert not any(panel.chart.references for panel in without.panels)


def test_every_run_is_a_ring(contents: ReportContents) -> None:
    analysis = analyse(contents)
    difference = difference_figure(analysis)
    assert difference is not None
    for figure in (
        pass_rate_figure(analysis),
        retention_figure(analysis),
        difference,
    ):
        for panel in figure.panels:
            assert isinstance(panel.chart, RowChart)
            # A ring is no wider than its line says, and nothing else has such a line.
            rings = [r for *_, r in places(to_svg(panel), "path") if r.get("stroke-width") == "1.2"]
            assert len(rings) == 3 * len(panel.chart.rows)
    macro, first = difference.panels[0].chart.rows[:2]
    assert (macro.label, first.label) == ("Macro", "Lean")
    rates = {result.method: result.run_rates["lean"] for result in analysis.results}
    expected = [
        100 * (rates["vcrt"][seed].estimate - rates["canonical-grpo"][seed].estimate)
        for seed in range(3)
    ]
    assert first.runs == pytest.approx(expected, abs=0.006)


def test_the_guardrail_is_drawn_even_where_nothing_declines(contents: ReportContents) -> None:
    figure = retention_figure(analyse(contents))
    for panel in figure.panels:
        assert isinstance(panel.chart, RowChart)
        assert [r.value for r in panel.chart.references] == [0.0, -2.0]
        assert panel.chart.domain[0] < -2


def test_figures_fit_a_column_and_repeat() -> None:
    contents = synthetic_contents(
        rates={"vcrt": (0.9,), "no-anti": (0.6,)}, folds=("lean",), num_updates=5
    )
    analysis = analyse(contents)
    figures = (pass_rate_figure(analysis), curve_figures(contents)[0])
    written = to_files(figures)
    assert set(written) == {f"{f.name}.{kind}" for f in figures for kind in ("pdf", "png")}
    assert written == to_files(figures)
    for figure in figures:
        pdf, png = written[f"{figure.name}.pdf"], written[f"{figure.name}.png"]
        assert f"/MediaBox [0 0 {WIDTH:g} ".encode() in pdf
        # The font is in the file, as a subset, and no clock is.
        assert b"/FontFile2" in pdf
        assert b"LiberationSans" in pdf
        assert b"/CreationDate" not in pdf
        assert png.startswith(b"\x89PNG")
        # A column of 240 points at 300 pixels to the inch, and the file says so in pixels a metre.
        assert int.from_bytes(png[16:20], "big") == pytest.approx(1000, abs=1)
        assert png[png.index(b"pHYs") + 4 :][:4] == (11811).to_bytes(4, "big")


def test_a_column_names_its_methods_and_is_not_too_high(contents: ReportContents) -> None:
    for figure in curve_figures(with_constraint(contents)):
        root = ElementTree.fromstring(column(figure))
        assert float(root.attrib["height"]) <= 600
        words = {element.text for element in root.iter(f"{SVG}text")}
        assert {"VCRT", "No-Anti", "Lean held out"} <= words
        points = float(root.attrib["height"]) / float(root.attrib["viewBox"].split()[3])
        sizes = [float(e.attrib["font-size"][:-2]) for e in root.iter() if "font-size" in e.attrib]
        assert min(sizes) * points >= 6.5


def test_methods_differ_by_marker_and_colour(contents: ReportContents) -> None:
    styles = method_styles(contents.methods)
    assert styles["vcrt"] == 0
    assert len(set(styles.values())) == len(styles)
    assert as_drawn(0)["stroke"] > as_drawn(1)["stroke"]
    drawn = [as_drawn(number) for number in range(len(LIGHT))]
    for kind in ("color", "shape"):
        assert len({one[kind] for one in drawn}) == len(LIGHT)
