"""What is said of workloads as they are, and which of them a move is about. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dr_ctl.core.model import Role
from dr_ctl.engine.operations import FAILOVER, FENCE, QUIESCE, SWAPOVER
from dr_ctl.engine.plan import Ask
from dr_ctl.engine.ports import Move, UnitSeen
from dr_ctl.settings.workloads import SystemdUnit
from dr_ctl.topologies.topology import PartState, WorkloadSeen
from dr_ctl.topologies.workloads.calls import concerned
from dr_ctl.topologies.workloads.checks import Beside, as_they_are

LONDON_SERVES = {"london": Role.SERVING, "paris": Role.STANDBY}
RUNS = WorkloadSeen("london", "billing", "command", singleton=True, parts={"billing": PartState.RUNNING})
RESTS = WorkloadSeen("paris", "billing", "command", singleton=True, parts={"billing": PartState.STOPPED})
SILENT = replace(RESTS, parts={}, silent="no answer")
UNITS = [UnitSeen("orders.in", "london"), UnitSeen("bills", "london")]


def of_move(operation: str, *seen: WorkloadSeen, already: bool = False, **more: str) -> list[tuple[str, str]]:
    move = Move(Ask(operation, "paris", **more), "london", {})  # type: ignore[arg-type]
    return [(each.id, each.severity.value) for each in Beside(move, LONDON_SERVES, already).against(seen)]


@pytest.mark.parametrize(
    ("seen", "id_"),
    [
        (replace(RUNS, site="paris", singleton=False), "DR-WORK-005"),
        (replace(RESTS, site="london"), "DR-WORK-006"),
        (SILENT, "DR-WORK-002"),
        (replace(RUNS, parts={"a": PartState.RUNNING, "b": PartState.STOPPED}), "DR-WORK-006"),
        (replace(RUNS, site="paris", parts={"billing": PartState.BETWEEN}), "DR-WORK-005"),
    ],
)
def test_what_is_not_is_named(seen: WorkloadSeen, id_: str) -> None:
    assert [each.id for each in as_they_are(LONDON_SERVES, [seen])] == [id_]


def test_where_both_sites_serve_a_part_nothing_is_misplaced() -> None:
    roles = {"london": Role.SERVING, "paris": Role.SERVING}
    assert list(as_they_are(roles, [replace(RUNS, site="paris"), replace(RESTS, site="london")])) == []


def test_a_singleton_at_two_sites_refuses_all_but_what_closes_a_site() -> None:
    twice = (RUNS, replace(RUNS, site="paris"))
    assert of_move(SWAPOVER, *twice)[0] == ("DR-WORK-001", "error")
    assert of_move(FENCE, *twice)[0] == ("DR-WORK-001", "warning")
    assert of_move(SWAPOVER, *twice, already=True)[0] == ("DR-WORK-001", "warning")
    assert of_move(SWAPOVER, *(replace(each, singleton=False) for each in twice)) == [("DR-WORK-005", "warning")]


def test_what_is_not_read_refuses_what_rests_on_it() -> None:
    lost = replace(SILENT, site="london")
    assert of_move(SWAPOVER, RUNS, SILENT) == [("DR-WORK-002", "error")]
    assert of_move(QUIESCE, RUNS, SILENT) == []
    assert of_move(QUIESCE, lost) == [("DR-WORK-002", "error")]
    assert of_move(FENCE, lost) == [("DR-WORK-002", "warning")]
    assert of_move(FAILOVER, lost, SILENT) == [("DR-WORK-007", "warning"), ("DR-WORK-002", "warning")]


@pytest.mark.parametrize(
    ("queues", "units", "moves"),
    [
        ((), None, True),
        ((), ("orders.in",), False),
        ((), ("orders.in", "bills"), True),
        (("orders.#",), ("orders.in",), True),
        (("orders.#",), ("bills",), False),
        (("orders.#",), None, True),
    ],
)
def test_a_part_of_a_site_moves_what_works_on_it(
    queues: tuple[str, ...], units: tuple[str, ...] | None, moves: bool
) -> None:
    told = SystemdUnit(name="mailer", kind="systemd", unit="mailer.service", queues=queues)
    assert concerned(told, Ask(SWAPOVER, "paris", units=units), UNITS) is moves


def test_what_runs_only_beside_a_lost_site_is_misplaced_nowhere() -> None:
    seen = [replace(RUNS, site="paris", alone=True, singleton=False), replace(RESTS, site="london", alone=True)]
    assert list(as_they_are(LONDON_SERVES, seen)) == []
