"""History that both sites have processed is removed while clients work, on two real brokers; the ledger judges the move
that follows."""

from __future__ import annotations

import pytest

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator
from tests.topologies.bridges.real import QUEUES, assert_clean

pytestmark = [pytest.mark.broker, pytest.mark.deep]

RATE = 100 * len(QUEUES)


def test_a_trim_beside_working_clients_takes_what_is_done_and_nothing_else(
    bridges_lab: Lab, operator: Operator
) -> None:
    with bridges_lab.load(RATE) as load:
        load.wait_for(5 * RATE, within_s=60)
        before = bridges_lab.admin("paris").depths()
        trimmed = operator.run("trim", "paris", "--yes")
        removed = [each for each in operator.journal() if (each["step"] or "").endswith("-trim")][-1]["evidence"][
            "removed"
        ]
        moved = operator.run("swapover", "--to", "paris", "--yes")
        load.wait_for(load.counts().sent + RATE)
        back = operator.run("trim", "london", "--yes")
        returned = operator.run("swapover", "--to", "london", "--yes")
        load.wait_for(load.counts().sent + RATE)
        verdict = load.stop()

    print(removed, verdict.as_json())
    assert [each.code for each in (trimmed, moved, back, returned)] == [0, 0, 0, 0], trimmed.told
    # All that lay there when it began, but for what clients had in hand.
    assert sum(removed.values()) > sum(before[name] for name in QUEUES) - RATE
    assert_clean(verdict)
