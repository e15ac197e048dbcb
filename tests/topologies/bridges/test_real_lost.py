"""The serving one of two real brokers is killed under load, with messages, ids, both or nothing held up, and returns.

The ledger says what was lost and what came twice, the failover what of it could be. A return doubles nothing but what
the lost site's consumers had in hand and could not announce any more, and it names those messages by their ids.
"""

from __future__ import annotations

import pytest

from dr_ctl.agents.monitor import recording
from dr_ctl.settings.loader import load
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.ledger import Counts, Key, Verdict
from dr_ctl_lab.lab.traffic import Load
from tests.broker.driving import Ended, Operator, accepting, until
from tests.topologies.bridges.real import QUEUES, ids, shipped, stop_bridges

pytestmark = [pytest.mark.broker, pytest.mark.deep]

RATE = 100 * len(QUEUES)
EVERY_S = 0.5
# What of it is held up, the ids or not; and how long a consumer works. One that keeps up leaves nothing to lose.
HELD = {"nothing": ((), 0.0), "messages": ((False,), 12.0), "ids": ((True,), 0.0), "both": ((False, True), 12.0)}


@pytest.mark.parametrize("held", HELD)
def test_a_lost_site_is_replaced_and_taken_in_again(bridges_lab: Lab, operator: Operator, held: str) -> None:
    bridges, work_ms = HELD[held]
    with bridges_lab.load(RATE, work_ms=work_ms) as traffic:
        refused, moved = lose(bridges_lab, operator, traffic, bridges)
        traffic.wait_for(traffic.counts().sent + RATE)
        lost = came_to_rest(bridges_lab, traffic)
        traffic.resume_producing()
        bridges_lab.start("london")
        asked = operator.run("failback", "--to", "london", "--yes")
        returned = operator.run("failback", "--to", "london", "--yes", *accepting(asked)) if asked.code else asked
        traffic.wait_for(traffic.counts().sent + RATE)
        verdict = traffic.stop(drain_s=60)
    bounds = refused.document["data"]["bounds"]
    duplicates = doubled(lost)
    print(
        f"{held} held up: lost {len(lost.lost)} of {bounds['lost']}, twice {len(duplicates)} of "
        f"{bounds['duplicates']}; the return doubled {len(doubled(verdict) - duplicates)}"
    )

    assert (refused.code, moved.code) == (11, 0), moved.told
    assert lost.lost or False not in bridges
    assert duplicates or True not in bridges
    assert len(lost.lost) <= bounds["lost"]["at_most"]
    assert len(duplicates) <= bounds["duplicates"]["at_most"]
    assert {each["id"] for each in asked.document["findings"] if each["severity"] == "error"} <= {"DR-RETURN-010"}
    assert returned.code == 0, returned.told
    assert verdict.drained
    assert verdict.lost == ()
    named = [each["text"] for each in returned.document["findings"] if each["id"] == "DR-RETURN-010"]
    unsaid = {key for key in doubled(verdict) - duplicates if not any(key[1] in text for text in named)}
    assert unsaid == set(), (named, unsaid)
    until(lambda: shipped(bridges_lab, "london", "paris"), why="all ids are applied")
    assert ids(bridges_lab, "london") == ids(bridges_lab, "paris")
    assert operator.run("status").document["debts"] == []


def lose(lab: Lab, operator: Operator, traffic: Load, held: tuple[bool, ...]) -> tuple[Ended, Ended]:
    """Hold up for three seconds what London ships, and kill it; the failover that is refused for its price, and the one
    that accepts it."""
    failover = ("failover", "--to", "paris", "--yes")
    with recording(load(operator.settings), every_s=EVERY_S):
        traffic.wait_for(3 * RATE, within_s=60)
        for each in held:
            stop_bridges(lab, "london", of_ids=each)
        traffic.wait_for(traffic.counts().sent + 3 * RATE, within_s=60)
        lab.kill("london")
        until(lambda: "down" in operator.run("status").told, why="london is seen down")
    refused = operator.run(*failover)
    return refused, operator.run(*failover, *accepting(refused))


def came_to_rest(lab: Lab, traffic: Load) -> Verdict:
    """What became of all messages once nothing lies any more in the queues of the site that serves."""
    traffic.pause_producing()

    def idle(counts: Counts) -> bool:
        return counts.received == counts.consumed + counts.ack_in_doubt and lab.target().left(QUEUES) == 0

    traffic.wait_until(idle, within_s=60, what="the queues are empty")
    return traffic.ledger.verdict()


def doubled(verdict: Verdict) -> set[Key]:
    """What clients worked on again, whether or not they had been told that the first time counted."""
    return {*verdict.duplicates, *verdict.redelivered}
