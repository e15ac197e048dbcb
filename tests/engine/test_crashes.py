"""Killed anywhere, resumed or aborted: the end is that of a run that nobody disturbed, or the start again; of failovers
and returns too, which have ends of their own."""

import signal
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_ctl.core.model import ExitCode, Role
from dr_ctl.engine.ask import Ask
from dr_ctl.engine.context import StopAtOnce, StopRequest
from dr_ctl.engine.executor import RunResult
from dr_ctl.engine.plan import Plan, Refusal
from dr_ctl.engine.ports import Done, Outcome, Refused, Unknown
from dr_ctl.telemetry.events import StepStarted
from tests.engine.desk import (
    CALLS,
    DEBTS,
    EFFECTS,
    FAILBACK,
    FAILOVER,
    LOSS,
    MOVED,
    REINSTATE,
    REVERTIBLE,
    START,
    Clock,
    Cost,
    Desk,
    at_the,
)
from tests.engine.machine import KILLS, Fault, Killed, Machine, back, lost

WRITES = range(1, 34)  # of an undisturbed run: one for each block of lines
UNDOING_WRITES = range(1, 30)  # of a run whose last revertible call is refused
UNDONE = (ExitCode.REVERTED, ExitCode.DRAIN_TIMEOUT)
REFUSING = {REVERTIBLE[-1]: Fault.REFUSED}


@pytest.mark.parametrize(("faults", "writes"), [({}, WRITES), (REFUSING, UNDOING_WRITES)])
def test_the_crashes_of_this_file_are_at_every_write(at: Desk, faults: dict[int, Fault], writes: range) -> None:
    clock = Clock()
    at.machine.faults = faults

    at.go(clock=clock)

    assert clock.looks == writes[-1]


def moved(at: Desk) -> None:
    """What is left to do is done, and every call was made once."""
    assert at.go().code is ExitCode.OK
    assert (at.machine.dump(), at.machine.effects) == (MOVED, EFFECTS)


def put_back(at: Desk) -> None:
    assert at.abort().code is ExitCode.OK
    assert at.machine.dump() == START


@pytest.mark.parametrize("end", [moved, put_back])
@pytest.mark.parametrize("fault", KILLS)
@pytest.mark.parametrize("number", CALLS)
def test_killed_at_a_call_it_ends_the_same_or_is_put_back(
    at: Desk, number: int, fault: Fault, end: Callable[[Desk], None]
) -> None:
    at.machine.faults = {number: fault}
    assert at.killed()
    # At an activating call it cannot be aborted any more.
    assert at.may_abort() is (number in REVERTIBLE)
    if at.may_abort() or end is moved:
        end(at)


@pytest.mark.parametrize("end", [moved, put_back])
@pytest.mark.parametrize("write", WRITES)
def test_killed_before_a_line_it_ends_the_same_or_is_put_back(
    at: Desk, write: int, end: Callable[[Desk], None]
) -> None:
    """Resumed it is killed once more. It can be aborted until an activating call may have gone out; without a line no
    run has begun."""
    assert at.killed(Clock(dies_at=write))
    if end is moved:
        at.killed(Clock(dies_at=12))
        moved(at)
    elif write > WRITES[0]:
        assert at.may_abort() is ("10-activate" not in at.lines("intent"))
        end(at) if at.may_abort() else moved(at)


def test_an_abort_that_has_nothing_to_undo_does_not_claim_that_the_source_serves(at: Desk) -> None:
    assert at.killed(Clock(dies_at=5))
    at.machine.sites["london"].silent = True
    aborted = at.abort()
    assert aborted.code is ExitCode.UNKNOWN
    assert aborted.text == "aborted; nothing was changed, but london is unknown, paris is standby: look at london first"


# Killed at the very first the journal holds no plan: nothing was changed, and nothing can be aborted.
@pytest.mark.parametrize(
    ("write", "abort"), [(write, abort) for write in UNDOING_WRITES for abort in (False, True)[: min(write, 2)]]
)
def test_killed_while_undoing_it_ends_the_same_or_is_put_back(at: Desk, write: int, abort: bool) -> None:
    at.machine.faults = REFUSING
    assert at.killed(Clock(dies_at=write))
    at.machine.faults = {}
    ended = at.abort() if abort else at.go()
    assert ended.code is ExitCode.OK
    assert at.machine.dump() == (START if abort else MOVED)


# A site is lost, or returns


def failover(folder: Path, cost: Cost | None = None) -> Desk:
    return Desk(folder, Machine(sites=lost()), ask=FAILOVER, exposure=cost or Cost())


def failback(folder: Path, ask: Ask = FAILBACK) -> Desk:
    return Desk(folder, Machine(sites=back(), debts=DEBTS), ask=ask)


def reinstate(folder: Path) -> Desk:
    return failback(folder, REINSTATE)


@pytest.mark.parametrize(("make", "calls"), [(failover, 3), (reinstate, 3), (failback, 9)])
def test_what_died_at_any_call_ends_the_same(tmp_path: Path, make: Callable[[Path], Desk], calls: int) -> None:
    whole = make(tmp_path)
    whole.go()
    assert whole.machine.calls == calls
    for number in range(1, calls + 1):
        for fault in KILLS:
            (folder := tmp_path / f"{number}-{fault.name}").mkdir()
            at = make(folder)
            at.machine.faults = {number: fault}
            assert at.killed()
            ended = at.go()
            assert ended.code is ExitCode.OK, (number, fault, ended)
            assert at.machine.dump() == whole.machine.dump(), (number, fault)


def test_the_price_is_asked_once_more_right_before_the_point_of_no_return(tmp_path: Path) -> None:
    at = failover(tmp_path, Cost((0, 0, 5)))
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
    ended = failover(tmp_path / "closed", Cost((0, 5))).go(answers={"quarantine": Done("it is closed already")})
    assert (ended.code, ended.text) == (ExitCode.LOSS_REFUSED, "5 may be lost; nothing was changed")


@pytest.mark.parametrize("returned", [False, True], ids=["it_stays_away", "it_came_back_closed"])
def test_a_failover_is_finished_also_where_the_lost_site_came_back(tmp_path: Path, returned: bool) -> None:
    at = failover(tmp_path)
    at.machine.faults = {3: Fault.KILLED_BEFORE}
    assert at.killed()
    if returned:
        at.machine.sites["london"] = replace(back()["london"], outflow=0)
    ended = at.go()
    assert (ended.code, ended.snapshot.units[0].serving) == (ExitCode.OK, "paris")
    assert ended.bounds is not None, "it was said by the process that died"


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST, Fault.KILLED_BEFORE])
def test_a_failover_that_cannot_keep_residue_out_or_is_aborted_is_as_before_it(tmp_path: Path, fault: Fault) -> None:
    dies, at = fault is Fault.KILLED_BEFORE, failover(tmp_path)
    at.machine.faults = {2 if dies else 1: fault}
    before = at.machine.dump()
    assert not dies or at.killed()
    ended = at.abort() if dies else at.go()
    assert (ended.code, ended.undone) == (ExitCode.OK if dies else ExitCode.REVERTED, True)
    assert ended.text == "aborted; undone: no site serves, as before" or not dies
    assert at.machine.dump() == before


@pytest.mark.parametrize("opened", [False, True], ids=["closed", "open"])
def test_a_failback_takes_the_site_in_and_moves_back(tmp_path: Path, opened: bool) -> None:
    at = failback(tmp_path)
    at.machine.sites = back(opened=opened)  # the machine judges two open sites only when one is opened beside another
    ended = at.go()
    assert ended.code is ExitCode.OK, ended
    assert (ended.snapshot.units[0].serving, ended.snapshot.debts) == ("london", ())
    closed = {"listeners": {"clients": False, "legacy": False}, "paused": {"orders": False, "bills": True}}
    assert at.machine.dump() == {
        "london": {"listeners": {"clients": True, "legacy": True}, "paused": {"orders": False}},
        "paris": {**closed, "links": {"mirror": True}},
    }


def test_a_no_to_the_question_ends_declined_with_the_site_taken_in(tmp_path: Path) -> None:
    questions: list[str] = []
    at = failback(tmp_path)
    at.asker = lambda sentence: bool(questions.append(sentence))
    ended = at.go()
    assert (ended.code, ended.undone) == (ExitCode.DECLINED, None)
    assert "london stays taken in: `dr-ctl swapover --to london`" in ended.text
    assert questions == ["Both sites hold the same messages. Move the service back now?"]
    assert (at.machine.sites["paris"].open, at.machine.sites["paris"].links) == (True, {"mirror": True})
    assert not [line for line in at.lines("step") if "undo" in line]
    assert at.machine.debts == ()


@pytest.mark.parametrize("killed", [False, True], ids=["in one go", "gone on with by a second process"])
@pytest.mark.parametrize("outcome", [Refused("it grows"), Unknown("silence")])
@pytest.mark.parametrize("verb", ["catch-up", "fence", "verify"])
def test_what_was_taken_in_stays_when_the_move_fails(tmp_path: Path, verb: str, outcome: Outcome, killed: bool) -> None:
    at = failback(tmp_path)

    def die() -> None:
        at.machine.faults = {at.machine.calls + 1: Fault.KILLED_BEFORE}

    assert not killed or at.killed(listener=at_the(StepStarted, "quiesce", die))
    ended = at.go(answers={verb: outcome})

    assert (ended.code, ended.undone) == (ExitCode.REVERTED, True)
    assert ended.text.endswith("undone: paris serves again")
    assert at.machine.sites["paris"].open
    assert at.machine.sites["paris"].links == {"mirror": True}
    assert "04-reinstate undo-started" not in at.lines("step")
    assert not any(paused for queue, paused in at.machine.sites["paris"].paused.items() if queue != "bills")


@pytest.mark.parametrize("refused", ["a call", "reconcile"])
def test_before_it_is_taken_in_a_failure_undoes_all(tmp_path: Path, refused: str) -> None:
    at = failback(tmp_path)
    before = at.machine.dump()
    at.machine.faults = {2: Fault.REFUSED} if refused == "a call" else {}
    ended = at.go(answers={refused: Refused("they differ")})
    assert (ended.code, ended.undone) == (ExitCode.REVERTED, True)
    assert at.machine.dump() == before


# Anything at any time


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """A machine with any faults, whose sites may fall silent for good at any call."""
    faults = draw(st.dictionaries(st.integers(1, 14), st.sampled_from(Fault), max_size=3))
    stuck = draw(st.frozensets(st.sampled_from([*EFFECTS, "open clients at london"]), max_size=1))
    silences = draw(st.dictionaries(st.integers(1, 14), st.sampled_from(["london", "paris"]), max_size=1))
    machine = Machine(faults, stuck, cut=draw(st.integers(0, 5)) == 5)

    def during(number: int) -> None:
        if number in silences:
            machine.sites[silences[number]].silent = True

    machine.during = during
    return machine


@settings(max_examples=150, deadline=None)
@given(machine=machines(), signals=st.lists(st.integers(1, 14), max_size=2, unique=True))
def test_no_end_claims_more_than_the_sites_show(machine: Machine, signals: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ended = to_the_end(Desk(Path(folder), machine), signals)

    roles = machine.look().roles
    if ended is None:
        return
    if ended.code is ExitCode.OK:
        assert (roles["london"], roles["paris"]) == (Role.STANDBY, Role.SERVING)
        assert machine.dump() == MOVED
    if ended.code in UNDONE or ended.undone:
        assert machine.dump() == START
        assert roles["london"] is Role.SERVING
    if ended.code is ExitCode.INCOMPLETE:
        assert roles["paris"] is Role.SERVING


def to_the_end(desk: Desk, signals: list[int]) -> RunResult | None:
    """Go, and resume as often as the process dies; None where going on is refused."""
    stop, during = StopRequest(), desk.machine.during

    def interrupted(number: int) -> None:
        during(number)
        if number in signals:
            stop.ask(signal.SIGINT)

    desk.machine.during = interrupted
    while isinstance(decided := desk.decide(), Plan):
        try:
            return desk.go(stop=stop)
        except (Killed, StopAtOnce):
            stop = StopRequest()
    assert isinstance(decided, Refusal)
    return None
