"""Failover, reinstate and failback carried out: what is undone, what is kept, and the same end wherever they die."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.model import ExitCode, Role
from dr_ctl.engine.executor import RunResult
from dr_ctl.engine.outcome import Done, Outcome, Refused, Unknown
from dr_ctl.engine.plan import Ask
from dr_ctl.telemetry.events import StepStarted
from tests.engine.desk import Desk, at_the
from tests.engine.lost import DEBTS, FAILBACK, FAILOVER, LOSS, REINSTATE, Cost
from tests.engine.machine import KILLS, Fault, Machine, Seen, back, lost


def failover(folder: Path, *faults: tuple[int, Fault], cost: Cost | None = None) -> Desk:
    return Desk(folder, Machine(dict(faults), sites=lost()), ask=FAILOVER, price=cost or Cost())


def failback(folder: Path, *faults: tuple[int, Fault], opened: bool = False, ask: Ask = FAILBACK) -> Desk:
    return Desk(folder, Machine(dict(faults), sites=back(opened=opened), debts=DEBTS), ask=ask)


def stays_in(at: Desk, ended: RunResult[Seen]) -> None:
    """What was taken in is in, although the move back was undone."""
    assert (ended.code, ended.undone) == (ExitCode.REVERTED, True)
    assert ended.text.endswith("undone: paris serves again")
    assert at.machine.sites["paris"].open
    assert at.machine.sites["paris"].links == {"mirror": True}
    assert "04-reinstate undo-started" not in at.lines("step")
    assert not any(paused for queue, paused in at.machine.sites["paris"].paused.items() if queue != "bills")


def test_the_price_is_asked_once_more_right_before_the_point_of_no_return(tmp_path: Path) -> None:
    at = failover(tmp_path, cost=Cost((0, 0, 5)))
    before = at.machine.dump()
    at.decide()  # as the command line does before it holds the lock
    ended = at.go()
    assert (ended.code, ended.undone) == (ExitCode.REVERTED, True)
    assert ended.text == "5 may be lost; undone: no site serves, as before"
    assert [finding.id for finding in ended.findings] == [LOSS]
    assert at.machine.dump() == before
    undone = ["08-point-of-no-return failed", "06-quarantine undo-started", "06-quarantine undone"]
    assert at.lines("step")[-3:] == undone
    # Where nothing had to be changed until then it has its own code.
    (tmp_path / "closed").mkdir()
    ended = failover(tmp_path / "closed", cost=Cost((0, 5))).go(answers={"quarantine": Done("it is closed already")})
    assert (ended.code, ended.text) == (ExitCode.LOSS_REFUSED, "5 may be lost; nothing was changed")


@pytest.mark.parametrize(
    ("make", "calls"),
    [
        (failover, 3),
        (lambda *asked: failback(*asked, ask=REINSTATE), 3),
        (failback, 9),
    ],
    ids=["failover", "reinstate", "failback"],
)
def test_what_died_at_any_call_ends_the_same(tmp_path: Path, make: Callable[..., Desk], calls: int) -> None:
    (tmp_path / "whole").mkdir()
    whole = make(tmp_path / "whole")
    whole.go()
    assert whole.machine.calls == calls
    for number in range(1, calls + 1):
        for fault in KILLS:
            folder = tmp_path / f"{number}-{fault.name}"
            folder.mkdir()
            at = make(folder, (number, fault))
            assert at.killed()
            ended = at.go()
            assert ended.code is ExitCode.OK, (number, fault, ended)
            assert at.machine.dump() == whole.machine.dump(), (number, fault)


@pytest.mark.parametrize("returned", [False, True], ids=["it_stays_away", "it_came_back_closed"])
def test_a_failover_is_finished_whether_or_not_the_lost_site_came_back_meanwhile(
    tmp_path: Path, returned: bool
) -> None:
    at = failover(tmp_path, (3, Fault.KILLED_BEFORE))
    assert at.killed()
    if returned:
        at.machine.sites["london"] = replace(back()["london"], outflow=0)
    ended = at.go()
    assert (ended.code, ended.seen.units[0].serving) == (ExitCode.OK, "paris")
    assert ended.bounds is not None, "it was said by the process that died"


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST, Fault.KILLED_BEFORE])
def test_a_failover_that_cannot_keep_residue_out_or_is_aborted_is_as_before_it(tmp_path: Path, fault: Fault) -> None:
    dies = fault is Fault.KILLED_BEFORE
    at = failover(tmp_path, (2 if dies else 1, fault))
    before = at.machine.dump()
    assert not dies or at.killed()
    ended = at.abort() if dies else at.go()
    assert (ended.code, ended.undone) == (ExitCode.OK if dies else ExitCode.REVERTED, True)
    assert ended.text == "aborted; undone: no site serves, as before" or not dies
    assert at.machine.dump() == before


@pytest.mark.parametrize("opened", [False, True], ids=["closed", "open"])
def test_a_failback_takes_the_site_in_and_moves_back(tmp_path: Path, opened: bool) -> None:
    at = failback(tmp_path, opened=opened)
    if opened:  # the machine judges two open sites only when one is opened beside another
        assert at.machine.look().roles == {"london": Role.SERVING, "paris": Role.SERVING}
    ended = at.go()
    assert ended.code is ExitCode.OK, ended
    assert (ended.seen.units[0].serving, ended.seen.debts) == ("london", ())
    closed = {"doors": {"clients": False, "legacy": False}, "paused": {"orders": False, "bills": True}}
    assert at.machine.dump() == {
        "london": {"doors": {"clients": True, "legacy": True}, "paused": {"orders": False}},
        "paris": {**closed, "links": {"mirror": True}},
    }


def test_a_no_to_the_question_ends_declined_with_the_site_taken_in(tmp_path: Path) -> None:
    questions: list[str] = []
    at = failback(tmp_path)
    at.asker = lambda sentence: bool(questions.append(sentence))
    ended = at.go()
    assert (ended.code, ended.undone) == (ExitCode.DECLINED, None)
    assert "london stays taken in: `dr-ctl swapover --to london`" in ended.text
    assert questions == ["Both sites hold the same. Move the service back now?"]
    assert (at.machine.sites["paris"].open, at.machine.sites["paris"].links) == (True, {"mirror": True})
    assert not [line for line in at.lines("step") if "undo" in line]
    assert at.machine.debts == ()


@pytest.mark.parametrize("outcome", [Refused("it grows"), Unknown("silence")])
@pytest.mark.parametrize("verb", ["catch-up", "fence", "verify"])
def test_what_was_taken_in_stays_in_when_the_move_back_fails(tmp_path: Path, verb: str, outcome: Outcome) -> None:
    at = failback(tmp_path)
    stays_in(at, at.go(answers={verb: outcome}))


def test_what_a_first_process_took_in_stays_in_when_a_second_fails(tmp_path: Path) -> None:
    at = failback(tmp_path)

    def die() -> None:
        at.machine.faults = {at.machine.calls + 1: Fault.KILLED_BEFORE}

    assert at.killed(listener=at_the(StepStarted, "quiesce", die))
    stays_in(at, at.go(answers={"verify": Refused("they differ")}))


@pytest.mark.parametrize(("faults", "answers"), [({2: Fault.REFUSED}, {}), ({}, {"reconcile": Refused("they differ")})])
def test_before_it_is_taken_in_a_failure_undoes_all(tmp_path: Path, faults: Any, answers: Any) -> None:
    at = failback(tmp_path)
    before = at.machine.dump()
    at.machine.faults = faults
    ended = at.go(answers=answers)
    assert (ended.code, ended.undone) == (ExitCode.REVERTED, True)
    assert at.machine.dump() == before
