"""The lost site and its return on real brokers with the real continuity plugin; the ledger of ids judges them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from dr_ctl.stomp_io.answers import Closed
from dr_ctl.stomp_io.client import greet
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.ledger import Counts, Key
from dr_ctl_lab.lab.traffic import Load
from tests.broker.driving import Operator, until
from tests.topologies.continuity.plugin import FAST, activated, bridges, needs_plugin, up

pytestmark = [pytest.mark.broker, pytest.mark.deep, needs_plugin]


class Both:
    """Two loads on one lab."""

    def __init__(self, lab: Lab, *loads: Load) -> None:
        self._lab, self._loads = lab, loads

    def go_on(self) -> None:
        for each in self._loads:
            each.resume_producing()
            each.wait_for(each.counts().sent + 40, within_s=60)

    def without(self) -> tuple[set[Key], set[Key]]:
        """What the site that serves never had, and what came twice, once nothing lies in its queues any more."""
        for each in self._loads:
            each.pause_producing()
        for each in self._loads:
            each.wait_until(self._done, within_s=120, what="the queues are empty")
        told = [each.ledger.verdict(drained=True) for each in self._loads]
        return {key for each in told for key in each.lost}, {key for each in told for key in each.duplicates}

    def _done(self, counts: Counts) -> bool:
        idle = counts.received == counts.consumed + counts.ack_in_doubt
        return idle and self._lab.target().left(self._lab.queues) == 0


@dataclass
class Behind:
    """A site that died while nothing of it was shipped, and is up again beside the one that took over; nothing that
    this one ships arrives, so a return cannot come to its end."""

    lab: Lab
    operator: Operator
    traffic: Load
    both: Both
    before: set[Key]

    @property
    def stated(self) -> dict[str, int]:
        told: dict[str, int] = self.operator.run("plan", "reinstate", "--to", "london").document["data"]["residue"]
        return told

    def doubled(self) -> set[Key]:
        """What came twice since, once all is over: nothing may be lost."""
        self.both.go_on()
        after = self.traffic.stop()
        assert after.drained
        assert not after.lost
        return set(after.duplicates) - self.before


@contextmanager
def behind(tmp_path: Path) -> Iterator[Behind]:
    with up(tmp_path / "lab") as lab, lab.load(60, queues=FAST, work_ms=1) as traffic:
        operator, both = Operator(lab, tmp_path / "state"), Both(lab, traffic)
        traffic.wait_for(100)
        bridges(lab, "london", "stop()", ".out.mirror.bridge", ".out.acks.bridge")
        traffic.wait_for(traffic.counts().sent + 90)
        lab.kill("london")
        until(lambda: "down" in operator.run("status").told, why="london is seen down")
        ended = operator.run(
            "failover", "--to", "paris", "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown"
        )
        assert ended.code == 0, ended.told
        _, before = both.without()
        lab.start("london")
        lab.cut("paris")
        yield Behind(lab, operator, traffic, both, before)


def test_a_return_that_fails_half_way_is_undone_and_doubles_nothing(tmp_path: Path) -> None:
    """The lost site's messages come in, and then the way closes: what was done there must not be delivered by the undo,
    although no acknowledgement says so yet."""
    with behind(tmp_path) as lost:
        lab, operator, stated = lost.lab, lost.operator, lost.stated
        failed = operator.run("reinstate", "london", "--yes", "--timeout", "8s")
        lost.both.go_on()
        lost.both.without()
        owed = operator.run("status").document["debts"]
        shut = not lab.admin("paris").clients_open("mirror")
        lab.heal()
        done = operator.run("reinstate", "london", "--yes")
        doubled = lost.doubled()
        paid = not operator.run("status").document["debts"]

    print(f"{stated}; {len(doubled)} doubled")
    assert stated["messages"] > 50
    assert failed.code == 24, failed.told
    assert owed
    assert shut
    assert done.code == 0, done.told
    assert len(doubled) <= stated["duplicates_at_most"]
    assert paid


@pytest.mark.parametrize(
    "tries",
    [1, pytest.param(5, marks=pytest.mark.chaos, id="five"), pytest.param(5, marks=pytest.mark.chaos, id="five-more")],
)
def test_commands_of_an_outage_activate_nobody(tmp_path: Path, tries: int) -> None:
    """A site that activates itself whenever its peer says that it is there, and a peer that says so again and again."""

    def eager(xml: str) -> str:
        return xml.replace('active-on-start" value="false"', 'active-on-start" value="true"')

    with up(tmp_path / "lab", edit=eager) as lab:
        operator = Operator(lab, tmp_path / "state")
        lost, left = "london", "paris"
        for number in range(tries):
            lab.kill(lost)
            ended = operator.run(
                "failover", "--to", left, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown"
            )
            assert ended.code == 0, ended.told
            lab.stop(left)
            lab.start(left)
            ended = operator.run(
                "failover", "--to", left, "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown"
            )
            assert ended.code == 0, ended.told

            lab.start(lost)

            until(lambda site=lost: lab.admin(site).active())
            ended = operator.run("reinstate", lost, "--yes")
            assert ended.code == 0, ended.told
            assert activated(lab, left) == (True, True)
            assert activated(lab, lost) == (False, False)
            clients = lab.site(lost)
            assert isinstance(greet(clients.stomp, clients.app, None, timeout_s=2), Closed)
            print(f"try {number + 1}: {left} serves, {lost} was not activated")
            lost, left = left, lost
