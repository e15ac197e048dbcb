"""Killed anywhere, resumed or aborted: the end is that of a run that nobody disturbed, or the start again."""

import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_ctl.core.model import ExitCode, Role
from dr_ctl.engine.executor import RunResult
from dr_ctl.engine.plan import Plan, Refusal
from dr_ctl.engine.stopping import StopAtOnce, StopRequest
from tests.engine.desk import EFFECTS, MOVED, OPENING, REVERTIBLE, START, Clock, Desk
from tests.engine.machine import KILLS, Fault, Killed, Machine

CALLS = [*REVERTIBLE, *OPENING]
WRITES = range(1, 34)  # of an undisturbed run: one for each block of lines
UNDOING_WRITES = range(1, 30)  # of a run whose last revertible call is refused
UNDONE = (ExitCode.REVERTED, ExitCode.DRAIN_TIMEOUT)


def refusing() -> Machine:
    return Machine({REVERTIBLE[-1]: Fault.REFUSED})


@pytest.mark.parametrize(("make", "writes"), [(Machine, WRITES), (refusing, UNDOING_WRITES)])
def test_the_crashes_of_this_file_are_at_every_write(
    tmp_path: Path, make: Callable[[], Machine], writes: range
) -> None:
    clock = Clock()

    Desk(tmp_path, make()).go(clock=clock)

    assert clock.looks == writes[-1]


def moved(at: Desk) -> None:
    """What is left to do is done, and every call was made once."""
    assert at.go().code is ExitCode.OK
    assert (at.machine.dump(), at.machine.effects) == (MOVED, EFFECTS)


@pytest.mark.parametrize("fault", KILLS)
@pytest.mark.parametrize("number", CALLS)
def test_killed_at_a_call_and_resumed_it_ends_as_if_undisturbed(tmp_path: Path, number: int, fault: Fault) -> None:
    at = Desk(tmp_path, Machine({number: fault}))
    assert at.killed()
    # At an activating call it cannot be aborted any more.
    assert at.may_abort() is (number in REVERTIBLE)
    moved(at)


@pytest.mark.parametrize("write", WRITES)
def test_killed_before_a_line_is_written_once_or_twice_and_resumed_it_ends_as_if_undisturbed(
    tmp_path: Path, write: int
) -> None:
    at = Desk(tmp_path)
    assert at.killed(Clock(dies_at=write))
    at.killed(Clock(dies_at=12))
    moved(at)


@pytest.mark.parametrize("fault", KILLS)
@pytest.mark.parametrize("number", REVERTIBLE)
def test_killed_at_a_call_before_the_point_of_no_return_and_aborted_it_is_as_at_the_start(
    tmp_path: Path, number: int, fault: Fault
) -> None:
    at = Desk(tmp_path, Machine({number: fault}))
    assert at.killed()
    aborted = at.abort()
    assert (aborted.code, aborted.undone) == (ExitCode.OK, True)
    assert aborted.text == "aborted; undone: london serves again"
    assert at.machine.dump() == START


@pytest.mark.parametrize("write", WRITES[1:])
def test_killed_before_a_line_is_written_it_can_be_aborted_until_an_activating_call_may_have_gone_out(
    tmp_path: Path, write: int
) -> None:
    at = Desk(tmp_path)
    assert at.killed(Clock(dies_at=write))
    past = "10-activate" in at.lines("intent")
    assert at.may_abort() is not past
    ended = at.go() if past else at.abort()
    assert ended.code is ExitCode.OK
    assert at.machine.dump() == (MOVED if past else START)


def test_an_abort_that_has_nothing_to_undo_does_not_claim_that_the_source_serves(tmp_path: Path) -> None:
    at = Desk(tmp_path)
    assert at.killed(Clock(dies_at=5))
    at.machine.sites["london"].silent = True
    aborted = at.abort()
    assert aborted.code is ExitCode.UNKNOWN
    assert aborted.text == "aborted; nothing was changed, but london is unknown, paris is standby: look at london first"


# Killed at the very first the journal holds no plan: nothing was changed, and nothing can be aborted.
@pytest.mark.parametrize(
    ("write", "abort"), [(write, abort) for write in UNDOING_WRITES for abort in (False, True)[: min(write, 2)]]
)
def test_killed_while_undoing_it_is_as_at_the_start_or_ends_as_if_undisturbed(
    tmp_path: Path, write: int, abort: bool
) -> None:
    at = Desk(tmp_path, refusing())
    assert at.killed(Clock(dies_at=write))
    at.machine.faults = {}
    ended = at.abort() if abort else at.go()
    assert ended.code is ExitCode.OK
    assert at.machine.dump() == (START if abort else MOVED)


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
