"""Two commands that start together, from two machines: one changes something, never two sites open, never none."""

import random
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.system import system
from dr_ctl_lab.played import PlayedTwin
from tests.broker.driving import Operator, end_all
from tests.twin.matrix import Judge, paused, serving

pytestmark = pytest.mark.wire

OTHER = {"london": "paris", "paris": "london"}
ROUNDS_IN_CI, ROUNDS = 1, 100


def changed(operator: Operator) -> int:
    """How many of its runs sent a call."""
    journals = operator.state.glob("runs/*/journal.jsonl")
    return sum('"kind":"intent"' in path.read_text(encoding="utf-8") for path in journals)


@pytest.mark.parametrize(
    "rounds", [ROUNDS_IN_CI, pytest.param(ROUNDS, marks=pytest.mark.chaos)], ids=lambda told: f"{told} rounds"
)
@pytest.mark.parametrize(
    "same",
    [pytest.param(True, id="same direction", marks=pytest.mark.deep), pytest.param(False, id="opposite directions")],
)
def test_of_two_that_start_together_one_moves(
    twin: PlayedTwin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool, rounds: int
) -> None:
    judge, chance = Judge(twin, monkeypatch), random.Random(rounds)
    stage: Any = twin
    operators = [Operator(stage, tmp_path / name, twin.settings_path) for name in ("here", "there")]
    try:
        for _ in range(rounds):
            [here] = serving(twin)
            targets = (OTHER[here], OTHER[here] if same else here)
            before = sum(changed(each) for each in operators)
            started = []
            for operator, target in zip(operators, targets, strict=True):
                started.append(operator.start("swapover", "--to", target, "--yes"))
                system().sleep(chance.random() * 0.2)  # how far apart they start is what differs from round to round

            ended = [each.wait(process) for each, process in zip(operators, started, strict=True)]

            codes = sorted(each.code for each in ended)
            assert codes in ([0, 0], [0, 10], [0, 13]), [each.document for each in ended]
            moves = sum(changed(each) for each in operators) - before
            # In the same direction the other has nothing left to do; back again it may go once the first has ended.
            assert moves == 1 if same else 1 <= moves <= 2
            assert len(serving(twin)) == 1
            assert (judge.twice, paused(twin)) == ([], [])
    finally:
        end_all()
