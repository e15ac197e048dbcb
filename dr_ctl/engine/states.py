"""The life of a step, as a table.

A step is pending until its start is on disk. After a crash, a started step without an end is in doubt: dr-ctl looks at
the brokers and never repeats it blindly. Undoing is a second life after the first: only a started step can be undone,
also when its end is not known. An illegal move raises and changes nothing.

    PENDING ── started ──> RUNNING ── succeeded ──> DONE ─────┐
                              ├────── unneeded ───> UNNEEDED ─┤
                              ├────── failed ─────> FAILED ───┼── undo-started ──> UNDOING ── undone ──> UNDONE
                              └────── lost ───────> UNKNOWN ──┘                       └───── undo-failed ──> STUCK
"""

from enum import Enum
from typing import Final

from dr_ctl.core.errors import DrCtlError


class StepState(Enum):
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    UNNEEDED = "unneeded"
    FAILED = "failed"
    UNKNOWN = "unknown"
    UNDOING = "undoing"
    UNDONE = "undone"
    STUCK = "stuck"


class StepEvent(Enum):
    STARTED = "started"
    SUCCEEDED = "succeeded"
    UNNEEDED = "unneeded"
    FAILED = "failed"
    LOST = "lost"
    UNDO_STARTED = "undo-started"
    UNDONE = "undone"
    UNDO_FAILED = "undo-failed"


MOVES: Final = {
    (StepState.PENDING, StepEvent.STARTED): StepState.RUNNING,
    (StepState.RUNNING, StepEvent.SUCCEEDED): StepState.DONE,
    (StepState.RUNNING, StepEvent.UNNEEDED): StepState.UNNEEDED,
    (StepState.RUNNING, StepEvent.FAILED): StepState.FAILED,
    (StepState.RUNNING, StepEvent.LOST): StepState.UNKNOWN,
    # A process that died left its step running; the next process undoes that step.
    (StepState.RUNNING, StepEvent.UNDO_STARTED): StepState.UNDOING,
    (StepState.DONE, StepEvent.UNDO_STARTED): StepState.UNDOING,
    (StepState.UNNEEDED, StepEvent.UNDO_STARTED): StepState.UNDOING,
    (StepState.FAILED, StepEvent.UNDO_STARTED): StepState.UNDOING,
    (StepState.UNKNOWN, StepEvent.UNDO_STARTED): StepState.UNDOING,
    (StepState.UNDOING, StepEvent.UNDONE): StepState.UNDONE,
    (StepState.UNDOING, StepEvent.UNDO_FAILED): StepState.STUCK,
    # A second `abort` tries again what the first could not, also after dying in the middle.
    (StepState.UNDOING, StepEvent.UNDO_STARTED): StepState.UNDOING,
    (StepState.STUCK, StepEvent.UNDO_STARTED): StepState.UNDOING,
}


class IllegalMove(DrCtlError):
    """A step was asked to do what its state does not allow: a defect in dr-ctl, or a journal that was altered."""


def after(state: StepState, event: StepEvent) -> StepState:
    """Say the state that follows; raises `IllegalMove` where the table has no row."""
    moved = MOVES.get((state, event))
    if moved is None:
        raise IllegalMove(f"a step that is {state.value} cannot be {event.value}")
    return moved
