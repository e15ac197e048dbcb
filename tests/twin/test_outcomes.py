"""Every operation, at every stage, under every fault: an end that is told is true, and no fault opens two sites."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import pytest

from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.faults import Fault, FaultKind, When
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT, MIRROR, SHARED_STORE
from tests.conftest import Command
from tests.twin.matrix import (
    NOTHING_CHANGED,
    OPERATIONS,
    Judge,
    as_undone,
    at_once,
    at_rest,
    moments,
    quick,
    serving,
    unprocessed,
)

KINDS = (
    FaultKind.SILENT,
    FaultKind.ERROR,
    FaultKind.RESET,
    FaultKind.PAGE,
    FaultKind.LIE,
    FaultKind.IDLE,
    FaultKind.UNANSWERED,
)
LIES = {
    MIRROR: (("Started", True), ("Started", False), ("MessageCount", 0), ("PendingMirrorAcks", 0), ("Paused", False)),
    CONTINUITY: (
        *(("Started", True), ("Started", False), ("MessageCount", 0), ("Paused", False), ("ConsumerCount", 0)),
        *(("SiteActivated", True), ("SiteActivated", False), ("Delivering", True), ("Delivering", False)),
    ),
    BRIDGES: (
        *(("Started", True), ("Started", False), ("MessageCount", 0), ("Paused", False), ("Paused", True)),
        *(("ConsumerCount", 0), ("Connected", True), ("MessagesAdded", 0), ("RolesAsJSON", "[]")),
    ),
    BROKERSYNC: (
        *(("Started", True), ("Started", False), ("QueueSize", 0), ("Paused", False), ("Paused", True)),
        *(("InFlightCount", 0), ("ConsumerCount", 0), ("EnqueueCount", 0), ("RemoteBrokerName", None)),
    ),
    FANOUT: (
        *(("Started", True), ("Started", False), ("QueueSize", 0), ("Paused", False), ("Paused", True)),
        *(("InFlightCount", 0), ("ConsumerCount", 0), ("EnqueueCount", 0), ("DequeueCount", 0)),
    ),
    SHARED_STORE: (
        *(("Started", True), ("Started", False), ("QueueSize", 0), ("Paused", False), ("Paused", True)),
        *(("InFlightCount", 0), ("ConsumerCount", 0), ("EnqueueCount", 0), ("Slave", True), ("Slave", False)),
    ),
}
AFTER = {True: (0, 1, 2, 3, 5), False: (0, 3, 8, 16, 30)}
TOPOLOGIES = (MIRROR, CONTINUITY, BRIDGES, BROKERSYNC, FANOUT, SHARED_STORE)


@dataclass(frozen=True)
class Cell:
    """One fault at one site, at the request that it meets after so many of its kind."""

    topology: str
    operation: str
    site: str
    changing: bool
    after: int
    kind: FaultKind

    def __str__(self) -> str:
        what = "change" if self.changing else "look"
        joined = "" if self.topology == MIRROR else f"{self.topology}, "
        return f"{joined}{self.operation}, {self.kind.value} at {what} {self.after} at {self.site}"

    @property
    def fault(self) -> Fault:
        attribute, value = random.Random(str(self)).choice(LIES[self.topology])
        when = When(changing=self.changing, after=self.after)
        return Fault(self.kind, when, attribute=attribute, value=value)


CELLS = [
    Cell(topology, operation, site, changing, after, kind)
    for topology, operation, site, changing, kind in itertools.product(
        TOPOLOGIES, OPERATIONS, ("london", "paris"), (True, False), KINDS
    )
    for after in AFTER[changing]
    # Only an operation can say that it did what it did not, only a look can lie; a dead site meets no request.
    if (kind is not FaultKind.IDLE or changing)
    and (kind is not FaultKind.LIE or not changing)
    and not (operation == "failover" and site == "london")
]
SOME = {
    cell
    for topology, operation in itertools.product(TOPOLOGIES, OPERATIONS)
    if at_once(topology, operation, ("swapover",))
    for cell in moments(
        [cell for cell in CELLS if (cell.topology, cell.operation) == (topology, operation)],
        whole=False,
        of=f"{topology} {operation}",
    )
}
assert len(CELLS) >= 1000


@pytest.mark.parametrize(
    ("topology", "cell"),
    [
        pytest.param(cell.topology, cell, id=str(cell), marks=() if cell in SOME else (pytest.mark.deep,))
        for cell in CELLS
    ],
)
def test_an_end_that_is_told_is_true(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, cell: Cell
) -> None:
    operation = OPERATIONS[cell.operation]
    operation.before(twin, dr_ctl)
    before, had, judge = at_rest(twin), unprocessed(twin), Judge(twin, monkeypatch)
    served = serving(twin)
    twin.host(cell.site).faults.add(cell.fault)

    with quick(monkeypatch):
        ended = dr_ctl(*operation.words, "--yes")

    for site in twin.sites:
        twin.host(site).faults.clear()
    assert judge.twice == []
    assert had <= unprocessed(twin), ended.document
    assert ended.code != 1, ended.document
    if ended.code == 0:
        at_rest(twin)
        assert operation.wanted(twin), ended.document
    elif ended.code in NOTHING_CHANGED:
        assert at_rest(twin) == before, ended.document
    elif ended.code in (20, 24) and ended.document["data"].get("undone"):
        assert as_undone(at_rest(twin), twin, operation) == as_undone(before, twin, operation), ended.document
        assert serving(twin) == served
    elif ended.code == 21:
        assert set(operation.serving) <= set(serving(twin)), ended.document
    elif ended.code == 22:
        assert "look at" in ended.document["summary"], ended.document
    elif ended.code == 23:
        assert serving(twin) == () or at_rest(twin) != before, ended.document
        assert "DR-RUN-001" in [finding["id"] for finding in ended.document["findings"]], ended.document
    else:
        # Of a drain by itself nothing is undone, and nobody is let in by its end.
        assert (cell.operation, ended.code) == ("drain", 24), ended.document
        assert serving(twin) == ()
