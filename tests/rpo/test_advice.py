"""What an estimate says beside its figures: where most comes from, what would shorten it, and that a site is away."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

from dr_ctl.application import at_stake
from dr_ctl.application.documents.estimates import EstimateData
from dr_ctl.cli.estimate_table import estimate_table
from dr_ctl.rpo.estimate.estimate import estimate
from dr_ctl.rpo.estimate.request import Request
from dr_ctl.rpo.estimate.result import Estimate, LossClass, LossLimit, Objectives, Outage, QueueShare
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from tests.documents import closed
from tests.rpo import by_hand
from tests.rpo.fifo import at
from tests.rpo.files import FixedClock

END_S, STALL_S = 7200, (3000, 3600)
OBJECTIVES = Objectives(LossLimit(500, 3600.0), (LossClass(("orders.#",), LossLimit(100)),))


def looks(*, stalls: bool = True, quick: int = 20) -> list[Row]:
    """A look every ten seconds: eight messages a second to one queue, two to another; for ten minutes the link and the
    consumers stand still, then `quick` things a second are shipped."""
    rows, shipped = [], 0
    for s in range(0, END_S, 10):
        is_still = stalls and STALL_S[0] <= s < STALL_S[1]
        sent = 10 * s
        consumed = 10 * STALL_S[0] if is_still else sent
        put = sent + consumed
        shipped = shipped if is_still else min(put, shipped + 10 * quick) if stalls and s >= STALL_S[1] else put
        common: dict[str, Any] = {"site": "london", "ts": at(s), "pair": "p", "start": "1"}
        rows += [
            Row(kind="site", name="serving", **common),
            Row(kind="mixed", name="*", depth=put - shipped, added=put, removed=shipped, link=True, **common),
        ]
        for name, share in (("orders.in", 0.8), ("other", 0.2)):
            counts = [round(share * each) for each in (sent, consumed)]
            rows.append(
                Row(kind="queue", name=name, depth=counts[0] - counts[1], added=counts[0], removed=counts[1],
                    acked=counts[1], **common)
            )  # fmt: skip
    return rows


def estimated(folder: Path, rows: list[Row], objectives: Objectives | None = OBJECTIVES) -> Estimate:
    write(rows, folder)
    asked = Request(history=str(folder), site="london", objectives=objectives)
    return estimate(asked, by_hand.made, clock=FixedClock(at(END_S + 60))).estimate


def test_what_would_shorten_it_names_the_time_the_link_and_the_queue(tmp_path: Path) -> None:
    when, link, queue, *_ = estimated(tmp_path, looks()).advice

    assert when == (
        "More than 500 were likely lost by a death once in the history, the longest for about 9 min 20 s from "
        "2026-03-01T12:50:40.000Z on: look what the link and the consumers did then."
    )
    assert link.startswith("While something waited, the outflow of pair p shipped at 20 a second")
    assert queue.startswith("80% of what was likely lost lay in orders.in of pair p, at most ")


CALM = [replace(row, added=0, removed=0, acked=None, depth=0) if row.kind != "site" else row for row in looks()]
MANY = [
    replace(row, name=f"q{number:02}") if row.kind == "queue" else row
    for row in looks()
    if row.kind != "queue" or row.name == "other"
    for number in range(40 if row.kind == "queue" else 1)
]
SHARES = [
    ("orders.in", pytest.approx(0.8, abs=0.01), pytest.approx(4720, abs=160)),
    ("other", pytest.approx(0.2, abs=0.01), ANY),
]
ADVICE: dict[str, tuple[list[Row], Objectives | None, Callable[[Estimate], Any], Any]] = {
    "the queues in which most was likely lost, with their share": (looks(), OBJECTIVES,
        lambda it: it.queues, tuple(QueueShare("p", *each) for each in SHARES)),
    "a share of all queues, however many there are": (MANY, OBJECTIVES,
        lambda it: ([(each.name, each.share) for each in it.queues], "likely lost lay in" in str(it.advice)),
        ([(f"q{number:02}", 1 / 40) for number in range(5)], False)),
    "the worst moment, without an objective": (looks(), None,
        lambda it: it.advice[0].startswith("Most was likely lost by a death at about 2026-03-01T12:5"), True),
    "nothing where nothing is lost and the bound is near": (CALM, OBJECTIVES,
        lambda it: (it.advice, it.queues), ((), ())),
    "that a bound is wide because looks are far apart": (looks(stalls=False), OBJECTIVES,
        lambda it: [each[:68] for each in it.advice if "bound" in each],
        ["The bound is far above what is likely because looks are 10 s apart: "]),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "objectives", "said", "expected"), ADVICE.values(), ids=ADVICE)
def test_what_is_told_beside_the_figures(
    tmp_path: Path, rows: list[Row], objectives: Objectives | None, said: Callable[[Estimate], Any], expected: Any
) -> None:
    assert said(estimated(tmp_path, rows, objectives)) == expected


def role(name: str, s: int) -> Row:
    return Row(site="london", ts=at(s), pair="p", kind="site", name=name)


@pytest.mark.parametrize(
    ("later", "outage"),
    [
        ([role("down", END_S), role("down", END_S + 30)], ("down", END_S + 30)),
        ([role("unknown", END_S), role("unknown", END_S + 30)], ("unknown", END_S + 30)),
        ([role("unknown", END_S)], None),
        ([role("standby", END_S), role("down", END_S + 30)], None),
        ([role("down", END_S), role("standby", END_S + 30)], None),
        ([], None),
    ],
    ids=["down", "silent", "late once", "moved, then down", "down, then waiting", "alive"],
)
def test_a_site_that_is_away_is_told_with_when_it_served_last(
    tmp_path: Path, later: list[Row], outage: tuple[str, int] | None
) -> None:
    found = estimated(tmp_path, [*looks(), *later])

    told = None if outage is None else Outage(at(END_S - 10), outage[0], at(outage[1]))
    assert found.outage == told
    shape = Draft202012Validator(closed(TypeAdapter(EstimateData).json_schema()))
    assert [*shape.iter_errors(json.loads(json.dumps(found.as_json())))] == []
    expected = "" if outage is None else (
        "as of 2026-03-01T13:59:50.000Z, before the outage of london; not the price of a failover now"
    )  # fmt: skip
    assert at_stake.as_of(found.as_json()) == expected
    assert "what a failover costs, with what may have come since: `dr-ctl status`" in estimate_table(
        found.as_json(), OBJECTIVES
    )


def test_in_a_terminal_likely_stands_beside_the_bound_and_the_objective_beside_both(tmp_path: Path) -> None:
    found = estimated(tmp_path, looks())

    lines = estimate_table(found.as_json(), OBJECTIVES).splitlines()

    head, likely, most = (line.split() for line in lines[:3])
    assert head == ["now", "p50", "p95", "p99", "max", "allowed", "at", "p99"]
    loss = found.total.loss
    assert likely[:3] == ["messages", "lost", "likely"]
    assert likely[3:] == [f"{getattr(loss.likely, each):g}" for each in head[:5]] + ["500"]
    assert most == ["at", "most", *(f"{getattr(loss, each):g}" for each in head[:5])]
    [of_class] = [line for line in lines if line.startswith("orders.#: messages lost")]
    assert of_class.split()[-1] == "100"
    assert "most was likely lost of orders.in 80% (at most" in "\n".join(lines)
    assert sum(line.startswith("- ") for line in lines) == len(found.advice) > 2
    assert "allowed" not in estimate_table(found.as_json(), None)
    assert estimate_table({}, None) == ""
