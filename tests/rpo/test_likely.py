"""What is likely against simulated histories whose truth is known: over time, and at a site's end."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dr_ctl.rpo.bounds.bounds import bounds
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from tests.rpo.simulator import EPOCH, LOADS, STEP_S, Load, Truth, history
from tests.rpo.test_coverage import covered, estimated

HOURS = 1.0
Told = list[tuple[float, float, float]]
SLACK = {"loss": 5, "duplicates": 5, "age_ms": 1000}


def seldom(rows: list[Row], every_s: float) -> list[Row]:
    """The same with looks at the queues no more often than that."""
    return [row for row in rows if row.kind != "queue" or (row.ts - EPOCH).total_seconds() % every_s == 0]


def figures(load: Load, every_s: float, folder: Path, queues_s: float | None = None) -> Told:
    """What was said likely and what was true, for the higher quantiles of each figure that says something; the bound
    is to hold at nearly every moment."""
    rows, truth = history(load, 2, hours=HOURS, pair="p", every_s=every_s, step_s=min(STEP_S, every_s))
    found = estimated(rows if queues_s is None else seldom(rows, queues_s), folder)
    moments, held, _ = covered(found.bounds["p"], truth)
    assert moments > 0.9 * len(truth.at_s)
    assert held >= 0.99 * moments
    told = []
    for metric, name, per in (("loss", "loss", 1), ("duplicates", "duplicates", 1), ("age_ms", "age_s", 1000)):
        for probability in (0.95, 0.99):
            said, was = found.likely["p", metric].quantile(probability), truth.quantile(name, probability) * per
            assert said is not None
            if was > SLACK[metric] + load.rate * every_s * (metric != "age_ms"):
                told.append((said, was, SLACK[metric]))
    return told


@pytest.mark.parametrize(
    ("every_s", "queues_s", "within"),
    [
        pytest.param(0.25, None, 0.15, marks=pytest.mark.deep),
        pytest.param(0.25, 5.0, 0.15, marks=pytest.mark.deep),
        (1.0, None, 0.15),
        (5.0, None, 0.35),
        (10.0, None, 0.35),
    ],
)
def test_likely_quantiles_are_near_the_truth(
    tmp_path: Path, every_s: float, queues_s: float | None, within: float
) -> None:
    loads = [load for load in LOADS if load.stretch == 0]

    told = [each for load in loads for each in figures(load, every_s, tmp_path / load.name.replace(" ", "-"), queues_s)]

    assert len(told) >= 12
    assert [(said, was) for said, was, slack in told if abs(said - was) > max(within * was, slack)] == []


@pytest.mark.parametrize("load", [LOADS[1], LOADS[3], LOADS[6]], ids=lambda load: load.name)
def test_looks_at_the_outflow_alone_make_no_bound_wrong_and_hardly_one_wider(tmp_path: Path, load: Load) -> None:
    rows, truth = history(load, 2, hours=HOURS, pair="p", every_s=STEP_S)
    both = seldom(rows, 5)

    found = estimated(both, tmp_path / "both")
    every_5_s = estimated([row for row in both if (row.ts - EPOCH).total_seconds() % 5 == 0], tmp_path / "five")

    moments, held, _ = covered(found.bounds["p"], truth)
    assert moments > 0.9 * len(truth.at_s)
    assert held >= 0.99 * moments
    for metric, name in (("loss", "loss"), ("duplicates", "duplicates")):
        said, before = (each.histograms["p", metric].quantile(0.95) for each in (found, every_5_s))
        assert said is not None
        assert before is not None
        assert truth.quantile(name, 0.95) - 1 <= said <= 1.05 * before + 1


def ends(load: Load, count: int, folder: Path) -> list[tuple[int, int, int, float]]:
    """A site dies now and then: what was said likely and at most, what was lost, and half a second of its traffic."""
    rows, truth = history(load, 3, hours=HOURS, pair="p", every_s=5.0)
    dice = random.Random(7)
    told = []
    for number in range(count):
        at_s = dice.uniform(900, 3500)
        place = folder / str(number)
        seen = [row for row in rows if at_s - 700 < (row.ts - EPOCH).total_seconds() <= at_s]
        down = Row(site="london", ts=EPOCH.fromtimestamp(EPOCH.timestamp() + at_s, EPOCH.tzinfo), pair="p", kind="site", name="down")  # fmt: skip  # noqa: E501
        write([*seen, down], place)
        found = bounds(place, site="london", now=down.ts, down_at=down.ts)
        assert found.lost.likely is not None
        assert found.lost.at_most is not None
        told.append((found.lost.likely, found.lost.at_most, loss_at(truth, at_s), load.rate / 2))
    return told


def loss_at(truth: Truth, at_s: float) -> int:
    return truth.loss[int(at_s / STEP_S)]


@pytest.mark.parametrize("load", [LOADS[0], LOADS[3], LOADS[4]], ids=lambda load: load.name)
def test_at_a_sites_end_the_likely_loss_is_near_the_truth(tmp_path: Path, load: Load) -> None:
    told = ends(load, 40, tmp_path)

    assert all(likely <= most for likely, most, _, _ in told)
    assert all(was <= most for _, most, was, _ in told)
    near = [abs(likely - was) <= max(0.5 * was, slack) for likely, _, was, slack in told]
    assert sum(near) >= 0.9 * len(told), [each for each, is_near in zip(told, near, strict=True) if not is_near]
