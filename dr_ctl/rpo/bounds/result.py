"""The bounds of a failover as values: in all, by queue, by class, and against the limits."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal

from dr_ctl.core.document import HIDDEN, derived, key
from dr_ctl.core.model import Finding, brief
from dr_ctl.core.notation import duration, if_known, matches
from dr_ctl.rpo.estimate.result import Objectives

QUOTED_FOR_S: Final = 300.0
"""A quoted figure covers for so long what it is said to cover."""
IF_LOST: Final = "of a failover, had the serving site been lost by now"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostSite:
    """The question: whose bounds, by which clock, and beside which other site. `pairs` names all pairs of the settings;
    a pair that the history does not know makes the total unknown. The patterns narrow the queues and classes in the
    answer, and the queues that are compared with those of the `other` site. They never narrow what an outflow takes
    with it, because it does not tell its queues apart. Queues in `may_differ` may rightly hold something else at
    each site, as dead letters do: their counts are not compared."""

    site: str
    now: datetime
    include: Sequence[str] = ("#",)
    exclude: Sequence[str] = ()
    may_differ: Collection[str] = ()
    pairs: Sequence[str] = ()
    other: str | None = None

    def selects(self, queue: str) -> bool:
        return matches(self.include, queue) and not matches(self.exclude, queue)


@dataclass(frozen=True, slots=True)
class Bound:
    """At most so many, from a reading of that moment: the oldest of the pairs' last ones; and how many are likely.
    None: not known."""

    at_most: int | None
    likely: int | None = field(default=None, kw_only=True)
    read_at: datetime | None


@dataclass(frozen=True, slots=True)
class Loss(Bound):
    because: str | None = field(default=None, kw_only=True, metadata=key(description="the arithmetic in one sentence"))


@dataclass(frozen=True, slots=True)
class QueueBound:
    """The bounds of a queue."""

    name: str
    lost: int | None
    duplicates: int | None


@dataclass(frozen=True, slots=True)
class ClassBound:
    """The bounds of queues with a limit of their own. `exceeded` is None where the bound is unknown."""

    queues: tuple[str, ...]
    lost: int | None
    limit: int | None
    age_limit_s: float | None = None

    @property
    def exceeded(self) -> bool | None:
        if self.limit is None:
            return False
        return None if self.lost is None else self.lost > self.limit


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a failover from `site`; `findings` name the knowledge that the bounds rest on."""

    site: str = field(metadata=HIDDEN)
    lost: Loss
    duplicates: Bound
    queues: tuple[QueueBound, ...] = ()
    classes: tuple[ClassBound, ...] = field(default=(), metadata=HIDDEN)
    findings: tuple[Finding, ...] = field(default=(), metadata=HIDDEN)
    age_s: float | None = None  # greatest age of the oldest lost message; None: not known
    # The growth of the loss and of the duplicates a second, for a later question.
    growing: tuple[float, float] = field(default=(0.0, 0.0), metadata=HIDDEN)
    last_message: datetime | None = field(
        default=None, metadata=HIDDEN
    )  # in or consumed, in the minutes that were read

    @derived
    def because(self) -> str | None:
        """The sum of the loss in a sentence; None: not known."""
        return self.lost.because

    def without_loss(self, at: datetime) -> Bounds:
        """Return the bounds of a site whose messages survive it."""
        return replace(
            self,
            lost=Loss(0, at, because="both sites use one store, which is not lost with a site"),
            queues=tuple(replace(queue, lost=0) for queue in self.queues),
            classes=tuple(replace(loss_class, lost=0) for loss_class in self.classes),
            age_s=None,
        )

    def exceeds(self, objectives: Objectives | None, accept: int | Literal["unknown"] | None = None) -> tuple[str, ...]:
        """Return the reasons to refuse the failover; there are none if it is allowed.

        `accept` replaces all limits: a number limits the total, "unknown" accepts an unknown bound, and no known one.
        Without objectives the limit is zero."""
        if self.lost.at_most is None and accept == "unknown":
            return ()
        if accept == "unknown":
            accept = None
        if self.lost.at_most is None:
            covered = f"; accepting {accept} does not cover the unknown" if accept is not None else ""
            return (f"how much {self.site} takes with it is not known{covered}",)
        text = f"up to {self.lost.at_most} message(s) may be lost"
        if accept is not None:
            return (f"{text}, {accept} are accepted",) if self.lost.at_most > accept else ()
        limit = 0 if objectives is None else objectives.loss.messages
        none_set = "no objectives are set that allow any"
        allowed = none_set if objectives is None else f"the objectives allow {if_known(limit)}"
        reasons = [f"{text}, {allowed}"] if limit is not None and self.lost.at_most > limit else []
        for loss_class in self.classes:
            if loss_class.exceeded:
                lost, allows = if_known(loss_class.lost), if_known(loss_class.limit)
                may = f"up to {lost} message(s) of {', '.join(loss_class.queues)} may be lost"
                reasons.append(f"{may}, their objective allows {allows}")
            if loss_class.lost != 0:
                reasons += self._too_old(loss_class.age_limit_s, f" of {', '.join(loss_class.queues)}")
        if self.lost.at_most > 0 and objectives is not None:
            reasons += self._too_old(objectives.loss.age_s, "")
        return tuple(reasons)

    def doubles(self, objectives: Objectives | None, accept: int | Literal["unknown"] | None = None) -> str | None:
        """Return the reason to refuse the failover for its duplicates, or no reason if it is allowed. `accept` replaces
        the limit, which is zero where none is set: duplicates are accepted by name, as a loss is."""
        at_most = self.duplicates.at_most
        if accept == "unknown" and at_most is None:
            return None
        accept = None if accept == "unknown" else accept
        limit = accept if accept is not None else objectives.duplicates if objectives is not None else None
        if at_most is None:
            covered = "" if limit is None else f"; a limit of {limit} does not cover the unknown"
            return f"how many duplicates are possible is not known{covered}"
        if at_most <= (limit or 0):
            return None
        allowed = "`objectives.duplicates` is not set" if limit is None else f"`objectives.duplicates` allows {limit}"
        allowed = allowed if accept is None else f"{accept} are accepted"
        likely = "" if self.duplicates.likely is None else f", likely {self.duplicates.likely}"
        return f"up to {at_most} duplicate(s) are possible{likely}; {allowed}"

    def most_duplicates(self) -> str:
        known = [(queue.duplicates, queue.name) for queue in self.queues if queue.duplicates]
        return brief([f"{name}: {count}" for count, name in sorted(known, reverse=True)])

    def quoted(self) -> tuple[str, str]:
        """Return the figures that accept the loss and the duplicates, also if somebody types them minutes later. A
        bound that grows is rounded up to two digits of its value by then."""
        return _quoted(self.lost, self.growing[0]), _quoted(self.duplicates, self.growing[1])

    def _too_old(self, limit_s: float | None, of: str) -> list[str]:
        if limit_s is None or (self.age_s is not None and self.age_s <= limit_s):
            return []
        unknown = "how old they are is not known"
        age = unknown if self.age_s is None else f"the oldest is up to {duration(self.age_s)} old"
        return [f"messages{of} may be lost and {age}, the objectives allow {duration(limit_s)}"]


def _quoted(bound: Bound, rate: float) -> str:
    if bound.at_most is None or not rate:
        return "unknown" if bound.at_most is None else str(bound.at_most)
    by_then = math.ceil(bound.at_most + rate * (QUOTED_FOR_S + 60))  # a bound grows by whole windows of a minute
    step = 10 ** max(0, len(str(by_then)) - 2)
    return str(-(-by_then // step) * step)
