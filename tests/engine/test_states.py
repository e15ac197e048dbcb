"""The life of a step: legal moves only, every state reachable."""

from __future__ import annotations

import itertools

import pytest

from dr_ctl.engine.states import MOVES, IllegalMove, StepEvent, StepState, after

ILLEGAL = [pair for pair in itertools.product(StepState, StepEvent) if pair not in MOVES]


@pytest.mark.parametrize(("state", "event"), ILLEGAL)
def test_an_illegal_move_raises(state: StepState, event: StepEvent) -> None:
    with pytest.raises(IllegalMove, match=event.value):
        after(state, event)


def test_every_state_can_be_reached() -> None:
    reached = {StepState.PENDING}
    for _ in StepState:
        reached |= {then for (state, _), then in MOVES.items() if state in reached}

    assert reached == set(StepState)
