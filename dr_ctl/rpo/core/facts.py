"""What a history is, beside its figures: flows and when each was looked at, roles, queues in which most was lost."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from dr_ctl.core.model import Finding
from dr_ctl.rpo.core.calibration import Tested
from dr_ctl.rpo.core.scope import Ask, OfScope

Sums = tuple[str, str, str, int, int, int, int, int]
"""Kind, scope and name of rows, their weight, count, most and least together, and the last cell."""


def pair_of(flow: str) -> str:
    return str(json.loads(flow)[0])


@dataclass(slots=True)
class Looked:
    """When a flow was looked at first and last, how often, and how far apart looks were at most."""

    first_us: int
    last_us: int
    looks: int
    spacing_us: int = 0


@dataclass(slots=True)
class Facts:
    """`flows` in order; `hours` with looks, by pair; `roles`: when the site was last seen in each; `shares`: of queues,
    by flow and name (none: of all others), message-milliseconds that were likely lost and the most at a look;
    `classes`: those of which a queue was read."""

    flows: dict[str, Looked] = field(default_factory=dict)
    hours: dict[str, set[int]] = field(default_factory=dict)
    hour_us: int = -1
    roles: dict[str, int] = field(default_factory=dict)
    shares: list[tuple[str, str, int, int]] = field(default_factory=list)
    classes: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, sums: Iterable[Sums], hours: Iterable[tuple[str, int]]) -> Self:
        """`hours`: pairs, and hours in which they were looked at."""
        found = cls()
        spacing: dict[str, int] = {}
        for kind, scope, name, weight, count, most, least, cell in sums:
            if kind == "looks":
                found.flows[scope] = Looked(least, most, count)
                found.hour_us = max(found.hour_us, cell)
            elif kind == "spacing":
                spacing[scope] = most
            elif kind == "role":
                found.roles[name] = most
            elif kind == "share":
                found.shares.append((scope, name, weight, most))
            elif kind == "read" and count:
                found.classes.add(scope)
        found.flows = {flow: found.flows[flow] for flow in sorted(found.flows, key=json.loads)}
        found.shares.sort()
        for flow, each in found.flows.items():
            each.spacing_us = spacing.get(flow, 0)
        for pair, hour in hours:
            found.hours.setdefault(pair, set()).add(hour)
        return found

    @property
    def span_us(self) -> tuple[int, int]:
        return min(each.first_us for each in self.flows.values()), max(each.last_us for each in self.flows.values())

    @property
    def pairs(self) -> Mapping[str, Sequence[Looked]]:
        found: dict[str, list[Looked]] = {}
        for flow, each in self.flows.items():
            found.setdefault(pair_of(flow), []).append(each)
        return found

    @property
    def away_us(self) -> tuple[int, ...]:
        """Hours in which some pair that had been looked at was not."""
        every = set().union(*self.hours.values())
        gone = (hour for own in self.hours.values() for hour in every - own if hour > min(own))
        return tuple(sorted({*gone}))

    @property
    def spacing_us(self) -> int:
        return max((each.spacing_us for each in self.flows.values()), default=0)


@dataclass(frozen=True, slots=True)
class Made:
    """A history that was read: of which site, which serves, and where it ends (exclusive). `findings`: files that are
    left out; `ahead`: how many with looks from far in the future of the clock, and the last of these."""

    site: str
    serving: str | None
    end_us: int
    facts: Facts
    figures: Callable[[Ask], Mapping[str, OfScope]]
    backtested: Callable[[Ask], Tested]
    findings: tuple[Finding, ...] = ()
    ahead: tuple[int, int] | None = None
