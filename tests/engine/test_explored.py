"""All that commands, faults and failures can lead to, to a depth that is stated: never two sites opened, never a false
success, always a way out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dr_ctl.core.model import ExitCode
from dr_ctl.engine import ending
from dr_ctl.engine.ending import End
from dr_ctl.engine.outcome import Done, Outcome
from dr_ctl.engine.plan import PlannedStep
from dr_ctl.engine.ports import Hand, Move
from tests.engine.explored import OPERATIONS, Explorer, World, healed, way_out
from tests.engine.machine import Driver

LONGEST = 3  # commands that lead out of any trouble


def one_site_serves(world: World) -> bool:
    return len(world.serving) == 1 and world.journal is None


def check(folder: Path, depth: int) -> Explorer:
    """The judgements of `explored.py` fail on the way; here each state's way out is looked for."""
    explorer = Explorer(folder)
    explorer.explore(depth)
    stuck = [
        each.path
        for each in explorer.seen.values()
        if way_out(explorer, healed(each), LONGEST, one_site_serves) is None
    ]
    assert not stuck, "\n".join("; ".join(path) for path in sorted(stuck, key=len)[:5])
    return explorer


@pytest.mark.parametrize(
    ("depth", "states"),
    [
        (1, 20),
        pytest.param(3, 2000, marks=pytest.mark.deep),  # some two minutes
        pytest.param(4, 10000, marks=pytest.mark.chaos),
    ],
)
def test_whatever_commands_meet_there_is_a_way_out(tmp_path: Path, depth: int, states: int) -> None:
    """From 3 114 states at depth 3, 19 000 commands were typed; no state is without a way out."""
    explorer = check(tmp_path, depth)

    assert len(explorer.seen) > states
    assert {name for name, _ in explorer.ended} == {*OPERATIONS, "resume", "abort"}
    assert all((name, ExitCode.OK) in explorer.ended for name in (*OPERATIONS[:1], "resume", "abort"))


def done(self: Driver, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """A step that believes what it has not seen."""
    return Done("done")


def opens_at_once(self: Driver, step: PlannedStep, move: Move, hand: Hand) -> Outcome:
    """An activation without a look at the other site."""
    return self._make(step.calls, hand)


def every_end_is_well(*facts: object) -> End:
    """A sentence that looks at no role."""
    return End(ExitCode.OK, "done", None, ())


@pytest.mark.parametrize(
    ("lies", "wrong"),
    [
        ([(Driver, "_drain", done), (Driver, "_verify", done)], "what the other holds is lost"),
        (
            [(Driver, "_fence", done), (Driver, "_verify", done), (Driver, "_activate", opens_at_once)],
            "both sites let clients in",
        ),
        ([(ending, "of", every_end_is_well)], "ended 0"),
    ],
)
def test_an_engine_that_believed_what_is_not_so_would_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lies: Sequence[tuple[object, str, object]], wrong: str
) -> None:
    for where, name, instead in lies:
        monkeypatch.setattr(where, name, instead)

    with pytest.raises(AssertionError, match=wrong):
        check(tmp_path, 1)
