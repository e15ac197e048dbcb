"""Findings about workloads: by themselves, and for one move. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, Severity
from dr_ctl.engine.operations import ACTIVATE, DRAIN, FAILBACK, FAILOVER, FENCE, QUIESCE, RESTART, SWAPOVER, UNFENCE
from dr_ctl.engine.ports import Check, Move
from dr_ctl.topologies.common.workloads import misplaced, starting, twice, unread
from dr_ctl.topologies.topology import WorkloadSnapshot

# A run that closes a site, or moves nothing, goes on whatever runs where.
_SAFE: Final = (FENCE, UNFENCE, RESTART)
# A run that stops workloads, or needs them stopped, reads all of them first.
_MUST_READ: Final = (SWAPOVER, FAILBACK, QUIESCE, DRAIN, ACTIVATE)


@dataclass(frozen=True, slots=True)
class Beside:
    """Judges the workloads of a move. `already` says that the move is done, so that nothing would be moved."""

    move: Move
    roles: Mapping[str, Role]
    already: bool

    def against(self, workloads: Sequence[WorkloadSnapshot]) -> Iterator[Finding]:
        yield from self.twice(workloads)
        for each in workloads:
            yield from self.of(each)

    def twice(self, workloads: Sequence[WorkloadSnapshot]) -> Iterator[Finding]:
        goes_on = self.already or self.move.ask.operation in _SAFE
        return twice(workloads, Severity.WARNING if goes_on else Severity.ERROR)

    def of(self, each: WorkloadSnapshot) -> Iterator[Finding]:
        operation, at_source = self.move.ask.operation, each.site == self.move.source
        if each.runs is not None:
            yield from misplaced(each, self.roles)
        elif operation == FAILOVER and at_source:
            yield _lost(each, self.move, self.roles)
        elif operation != QUIESCE or at_source:
            yield unread(each, Severity.ERROR if operation in _MUST_READ else Severity.WARNING)

    def named(self, workloads: Sequence[WorkloadSnapshot]) -> Iterator[Check]:
        """The checks by their names, with what was read for each."""
        for each in workloads:
            reading = ", ".join(filter(None, (each.state, each.detail)))
            yield Check(
                f"it can be told whether {each.name} runs",
                each.site,
                None if each.runs is None else reading,
                list(self.of(each)),
            )
        for name in dict.fromkeys(each.name for each in workloads if each.singleton):
            both = [each for each in workloads if each.name == name]
            reading = ", ".join(f"{each.site} {each.state}" for each in both)
            known = all(each.runs is not None for each in both)
            yield Check("a singleton runs at one site only", name, reading if known else None, list(self.twice(both)))


def _lost(each: WorkloadSnapshot, move: Move, roles: Mapping[str, Role]) -> Finding:
    """A lost site's workload that cannot be asked: the workload may run there still, or again when the site is back."""
    if each.singleton and not is_gone(each, move, roles[move.source]):
        return found("DR-WORK-007.singleton", name=each.name, site=move.source, target=move.target)
    return found("DR-WORK-007", name=each.name, site=move.source)


def is_gone(each: WorkloadSnapshot, move: Move, role: Role) -> bool:
    """Say whether an unread workload of a lost site is known not to run: somebody gave the word for that site, or it is
    down and the workload's own address refuses too. A workload may have a host of its own, which the death of a broker
    does not end."""
    return (move.ask.presume_down == move.source and move.ask.reason is not None) or (
        role is Role.DOWN and each.refuses
    )


def did_not_stop(each: WorkloadSnapshot, why: str) -> Finding:
    return found("DR-WORK-003", name=each.name, site=each.site, why=why)


def did_not_start(each: WorkloadSnapshot, why: str) -> Finding:
    return found("DR-WORK-004", state=each.state, site=each.site, why=why, name=each.name, starting=starting(each))
