"""Curves and figures: what is averaged, what is left out, and where a line stands."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from xml.etree import ElementTree

import numpy as np
import pytest

from report_support import (
    synthetic_contents,
)
from vcrt.report.analysis import analyse
from vcrt.report.contents import ReportContents
from vcrt.report.curves import CURVE_TITLES, curve_points, quantities
from vcrt.report.figures import curve_figures, pass_rate_figure
from vcrt.report.panels import COLORS


@pytest.fixture(scope="module")
def contents() -> ReportContents:
    return synthetic_contents()


def test_colors_can_be_seen_on_both_grounds() -> None:
    def luminance(color: str) -> float:
        channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for color in COLORS:
        for ground in ("#ffffff", "#14181b"):
            high, low = sorted((luminance(color), luminance(ground)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 3, (color, ground)


def test_curves_average_bins_and_runs() -> None:
    contents = synthetic_contents(rates={"vcrt": (0.9,)}, folds=("lean",), num_updates=130)
    points = curve_points(contents, "mean_reward")
    assert len(points) == 44  # 130 updates in bins of 3
    values = np.array([[row["mean_reward"] for row in run.curve] for run in contents.runs])
    first = values[:, :3].mean(axis=1)
    assert points[0].update == 2.0
    assert points[0].mean == pytest.approx(first.mean())
    assert (points[0].low, points[0].high) == pytest.approx((first.min(), first.max()))
    assert points[-1].update == 130.0
    assert points[-1].mean == pytest.approx(values[:, 129].mean())


def test_values_that_are_not_finite_are_left_out() -> None:
    contents = synthetic_contents(rates={"vcrt": (0.9,)}, folds=("lean",), num_runs=1)
    row = {"update": 1.0, "loss": float("nan"), "orbit_mass": float("inf"), "unknown": 1.0}
    contents = replace(contents, runs=(replace(contents.runs[0], curve=(row,)),))
    assert curve_points(contents, "loss") == ()
    assert quantities(contents) == ("orbit_mass", "loss")
    assert len(curve_figures(contents)) == 2


def test_every_logged_metric_has_a_title() -> None:
    from vcrt.training.update import UpdateMetrics

    logged = {field.name for field in fields(UpdateMetrics)} - {"update"}
    assert logged == set(CURVE_TITLES)


def test_the_pass_rate_figure_draws_chance(contents: ReportContents) -> None:
    """The dotted line of 5 of 24 stands at that share of the axis; that of the frozen backbone is dashed."""
    rare = replace(contents, dataset={**contents.dataset, "orbit_size": 5}, runs=contents.runs[:1])
    figure = pass_rate_figure(rare, analyse(rare))
    assert "Dotted: a random order (20.83%)." in figure.caption
    root = ElementTree.fromstring(figure.panels[0])
    places = {}
    for line in root.iter("{http://www.w3.org/2000/svg}line"):
        if "stroke-dasharray" in line.attrib:
            x = float(re.findall(r"[-\d.]+", line.attrib["transform"])[0])
            places[line.attrib["stroke-dasharray"].replace(" ", ",")] = x
    frozen = float(np.mean(rare.frozen["lean"].held_out_passes))
    assert set(places) == {"6,3", "1,3"}
    assert places["1,3"] / places["6,3"] == pytest.approx(5 / 24 / frozen, rel=0.01)
