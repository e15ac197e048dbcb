"""The bounds of a closed site that answers: what its outflows hold can be lost or come twice, and what lies at one site
and not at the other counts by queue, whatever the outflows say."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dr_ctl.application.estimates import objectives
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Severity, some
from dr_ctl.core.notation import matches
from dr_ctl.rpo.bounds.result import Bound, Bounds, ClassBound, Loss, QueueBound
from dr_ctl.rpo.history.row import Row
from dr_ctl.settings.model import Installation
from dr_ctl.topologies.topology import Snapshot, Stake


def bounds_of_closed(installation: Installation, site: str, snapshot: Snapshot, at: datetime) -> Bounds:
    """By one look, in which all brokers of the site answered."""
    return _Closed(installation, site, snapshot, at, snapshot.stake(site)).bounds()


@dataclass(frozen=True)
class _Closed:
    installation: Installation
    site: str
    snapshot: Snapshot
    at: datetime
    held: Sequence[Stake]

    def bounds(self) -> Bounds:
        limits, apart, depths = objectives(self.installation), self._apart(), self._depths()
        held_lost = _total([each.lost for each in self.held])
        held_duplicates = _total([each.duplicates for each in self.held])
        # One stream for all queues says of none of them what it holds: the queues themselves do.
        is_stream = any(each.queues is None for each in self.held)
        here = {name: count for name, count in apart.items() if count > 0}
        there = {name: -count for name, count in apart.items() if count < 0 and is_stream}
        untold = set[str]()
        if is_stream:
            untold = {*_more(here, held_lost), *_more(there, held_duplicates)} - {*self.snapshot.differing()}
        lost = None if untold & here.keys() else _at_least(held_lost, sum(here.values()))
        duplicates = None if untold & there.keys() else _at_least(held_duplicates, sum(there.values()))
        queues = tuple(
            QueueBound(
                name,
                None if name in untold & here.keys() else _at_least(own_lost, here.get(name, 0)),
                None if name in untold & there.keys() else _at_least(own_duplicates, there.get(name, 0)),
            )
            for name in sorted({*depths, *apart})
            for own_lost, own_duplicates in [self._of_queue(name, lost, duplicates, depths)]
        )
        classes = tuple(
            ClassBound(
                each.queues,
                _least(lost, _total([n for name, n in depths.items() if matches(each.queues, name)])),
                each.loss.messages,
            )
            for each in (limits.classes if limits is not None else ())
        )
        findings = tuple(self._differ(untold))
        return Bounds(self.site, Loss(lost, self.at), Bound(duplicates, self.at), queues, classes, findings)

    def _of_queue(
        self, name: str, lost: int | None, duplicates: int | None, depths: Mapping[str, int | None]
    ) -> tuple[int | None, int | None]:
        """By its own outflows; without those at most the site's total and the queue's depth."""
        own = [each.queues for each in self.held]
        if any(each is None for each in own):
            return _least(lost, depths.get(name, 0)), duplicates
        counts = [each.get(name, (0, 0)) for each in own if each is not None]
        return sum(each for each, _ in counts), _total([each for _, each in counts])

    def _depths(self) -> Mapping[str, int | None]:
        depths: dict[str, int | None] = {}
        for broker in self.snapshot.brokers:
            for name, depth in broker.depths.items() if broker.site == self.site else ():
                if self._is_selected(name):
                    depths[name] = _total([depths.get(name, 0), depth])
        return depths

    def _apart(self) -> Mapping[str, int]:
        """By queue how many more messages lie here than at the other site, where that was read."""
        if any(each.silent is not None for each in self.snapshot.brokers):
            return {}
        here, there = defaultdict[str, int](int), defaultdict[str, int](int)
        staged = {row.name: row for row in self._rows("staged") if row.site == self.site}
        for row in self._rows("queue"):
            if row.site == self.site:
                here[row.name] += row.depth or 0
            elif row.name not in staged:
                there[row.name] += row.depth or 0
        for name, row in staged.items():
            there[name] += row.depth or 0
        return {name: here[name] - there[name] for name in {*here, *there} if here[name] != there[name]}

    def _rows(self, kind: str) -> Iterator[Row]:
        rows = self.snapshot.rows(self.at)
        return (row for row in rows if row.kind == kind and self._is_selected(row.name))

    def _is_selected(self, name: str) -> bool:
        queues = self.installation.settings.queues
        return matches(queues.include, name) and not matches(queues.exclude, name)

    def _differ(self, untold: set[str]) -> Iterator[Finding]:
        if untold:
            yield found(
                "DR-PARITY-001",
                f"{self.site} and the other site differ by more than what is under way: {some(sorted(untold))}",
                "How many messages are lost, or come twice, nobody can say: find out why.",
                severity=Severity.WARNING,
            )


def _more(counts: Mapping[str, int], under_way: int | None) -> set[str]:
    return {name for name, count in counts.items() if under_way is not None and count > under_way}


def _at_least(bound: int | None, snapshot: int) -> int | None:
    return None if bound is None else max(bound, snapshot)


def _total(parts: Sequence[int | None]) -> int | None:
    return None if None in parts else sum(each or 0 for each in parts)


def _least(lost: int | None, lying: int | None) -> int | None:
    """No more than is lost in all, and than lies there where that was read."""
    return lost if lost is None or lying is None else min(lost, lying)
