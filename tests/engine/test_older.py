"""Runs that the version before left open, recorded on twins as it wrote them: read to the same facts, and undone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.model import Json
from dr_ctl.engine.entries import read
from dr_ctl.engine.executor import to_undo
from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.history import fenced_at, history, outage_s
from dr_ctl.engine.plan import Call, PlannedStep

RUNS = {path.name: path for path in (Path(__file__).parent / "recorded").iterdir()}
FLOWS = ("DLQ", "ExpiryQueue", "orders.in", "orders.out")
DEBTS = ("dr-ctl.debt.paris.fence.london", "dr-ctl.debt.paris.quarantine.london")


def undone(name: str) -> dict[str, list[tuple[str, Goal, str]]]:
    steps = to_undo(history(read(RUNS[name] / "journal.jsonl")))
    return {step.verb: [(call.site, call.goal, call.thing) for call in step.inverse] for step in steps}


@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_journal_of_the_version_before_says_what_it_said(name: str) -> None:
    """`facts.json` was made by that version of what its own journal says."""
    entries = read(RUNS[name] / "journal.jsonl")
    past, fenced = history(entries), fenced_at(entries)

    facts: dict[str, Json] = {
        "source": past.source,
        "target": past.ask.target,
        "activation": past.activation,
        "ended": past.ended,
        "serving": [*past.serving],
        "moved": [*past.moved],
        "states": {each.step.id: each.state.value for each in past.steps},
        "fenced_at": fenced.isoformat() if fenced is not None else None,
        "outage_s": outage_s(entries),
        "undo": [step.id for step in to_undo(past)],
    }

    assert facts == json.loads((RUNS[name] / "facts.json").read_text())


def test_a_move_that_died_before_it_was_activated_is_undone_by_what_its_calls_are_for() -> None:
    links = [("london", Goal.LINK_UP, "paris"), ("paris", Goal.LINK_UP, "london")]
    assert undone("mirror-swapover-before-activation") == {
        "drain": links,
        "fence": [
            ("london", Goal.ADMIT, "#"),
            ("london", Goal.ADMIT, ALL),
            ("london", Goal.OPEN, "clients"),
        ],
        "quiesce": [("london", Goal.RESUME, queue) for queue in FLOWS],
        "catch-up": links,
    }


def test_a_failover_that_died_in_the_middle_is_undone_by_what_its_calls_are_for() -> None:
    fence, quarantine = DEBTS
    assert undone("mirror-failover-quarantined") == {
        "activate": [("paris", Goal.CLOSE, "clients")],
        "quarantine": [("paris", Goal.OPEN, "mirror"), ("paris", Goal.STRIKE, quarantine)],
        "fence": [("paris", Goal.STRIKE, fence)],
    }


def test_the_plugins_own_calls_open_and_close_all_doors() -> None:
    told = undone("continuity-swapover-activating")

    assert (told["activate"], told["fence"]) == ([("paris", Goal.CLOSE, ALL)], [("london", Goal.OPEN, ALL)])


def test_a_return_that_died_while_it_held_delivery_is_undone_part_by_part() -> None:
    [step] = to_undo(history(read(RUNS["continuity-reinstate-held"] / "journal.jsonl")))
    last = {("paris", Goal.RESUME, f"{flow}.in.mirror") for flow in FLOWS}
    last |= {("paris", Goal.LINK_UP, f"{flow}.in.mirror.bridge") for flow in FLOWS}

    assert undone("continuity-reinstate-held")["reinstate"] == [
        ("paris", Goal.CLOSE, "mirror"),
        *(("paris", Goal.REMOVE, f"{flow}.in.mirror") for flow in FLOWS),
        *(("paris", Goal.RESUME, f"{flow}.in.mirror") for flow in FLOWS),
        *(("paris", Goal.LINK_UP, f"{flow}.in.mirror.bridge") for flow in FLOWS),
        *(("paris", Goal.WRITE, name) for name in DEBTS),
        *(("london", Goal.LINK_UP, f"{flow}.out.acks.bridge") for flow in FLOWS),
    ]
    delivering = {(call.site, call.goal, call.thing) for call in step.inverse if call.part == "deliver"}
    assert delivering == last


@pytest.mark.parametrize("name", [name for name in sorted(RUNS) if (RUNS[name] / "plan.json").exists()])
def test_every_call_of_an_older_plan_is_understood_and_is_sent_as_it_was(name: str) -> None:
    plan: dict[str, Any] = json.loads((RUNS[name] / "plan.json").read_text())
    for row in plan["steps"]:
        step = PlannedStep.from_json(row)
        for was, call in zip(row["calls"] + row["inverse"], (*step.calls, *step.inverse), strict=True):
            assert {key: call.as_json()[key] for key in was} == was
            assert Call.from_json(call.as_json()) == call
