"""What was under way at the last looks: of each outflow, and in total."""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from dr_ctl.rpo.core.columns import NA, Flags, Ints
from dr_ctl.rpo.core.steps import Course, Figures


@dataclass(frozen=True, slots=True)
class Now:
    """By outflow, without those that were last read long ago: the bound, what is likely, whether it stalls."""

    bound: Figures
    likely: Figures
    stalled: Flags
    acks_only: Flags
    flow: Ints

    @classmethod
    def of(cls, course: Course, scope: int) -> Self:
        flows, ends, count = course.flows, course.ends, len(course.flows.keys)
        us = flows.us[ends]
        pairs = np.unique([pair for pair, _ in flows.keys], return_inverse=True)[1] if count else np.zeros(0, np.int64)
        last_us = np.zeros(count, np.int64)
        np.maximum.at(last_us, pairs, us)
        gap = np.zeros(len(flows.us), np.int64)
        gap[course.last] = course.gap_us
        at_last = us == last_us[pairs]
        sends, acks = (np.where(at_last, side.depth[ends], NA) for side in (flows.sends, flows.acks))
        age = np.where(sends > 0, us - flows.oldest_us[ends], sends)
        floor = (sends > 0) & flows.is_floor[ends]
        alone, full = course.alone[ends], course.full[ends]
        unread = course.unread(scope)
        places = np.arange(count)
        bound, _ = course.figures(
            scope, course.queues.last, places, unread[np.where(alone, full, ends)], sends, acks, age, floor
        )
        bound = _grown(bound, course, np.flatnonzero(alone), sends, acks, age)
        likely = course.likely(scope, unread).take(ends)
        before = np.maximum(ends - 1, 0)
        goes_on = flows.goes_on[ends] & (flows.flow[before] == places)
        stalled = goes_on & (flows.sends.depth[ends] > 0) & (flows.sends.shipped[ends] == flows.sends.shipped[before])
        there = np.flatnonzero(at_last | (last_us[pairs] - us <= gap[ends]))
        return cls(bound.take(there), likely.take(there), stalled[there], ~course.has_sends[there], there)

    def of_flow(self, flow: int) -> Self | None:
        at = np.flatnonzero(self.flow == flow)
        return (
            type(self)(self.bound.take(at), self.likely.take(at), self.stalled[at], self.acks_only[at], at)
            if len(at)
            else None
        )

    @property
    def total(self) -> tuple[dict[str, int], dict[str, int], bool] | None:
        """The bound and what is likely of all together, and whether one stalls; None of none."""
        if not len(self.flow):
            return None
        return self._summed(self.bound), self._summed(self.likely), bool(self.stalled.any())

    def _summed(self, told: Figures) -> dict[str, int]:
        twice = np.flatnonzero(~self.acks_only) if len(self.flow) > 1 else np.arange(len(self.flow))
        found = {
            "loss": _sum(told.loss),
            "duplicates": _sum(told.duplicates[twice]),
            "age_ms": NA if (told.age_ms == NA).any() else int(told.age_ms.max()),
        }
        most = int(told.urge_ms.argmax())
        waits = NA if (told.waits == NA).any() else int(told.waits[most])
        return {
            **found,
            "waits": waits,
            "waits_flow": int(told.waits_flow[most]),
            "waits_acks": int(told.waits_acks[most]),
        }


def _sum(values: Ints) -> int:
    return NA if (values == NA).any() else int(values.sum())


def _grown(bound: Figures, course: Course, alone: Ints, sends: Ints, acks: Ints, age: Ints) -> Figures:
    """Since the last look at the queues no more can have come than was put into the outflow."""
    flows = course.flows
    end, full = course.ends[alone], course.full[course.ends[alone]]
    breaks = np.cumsum(~flows.goes_on)
    told = {each.name: getattr(bound, each.name).copy() for each in fields(bound)}
    for name, side, most in (("loss", flows.sends, sends), ("duplicates", flows.acks, acks)):
        grown = told[name][alone] + side.added[end] - side.added[full]
        known = (breaks[end] == breaks[full]) & side.known[full] & (told[name][alone] != NA)
        told[name][alone] = np.where(known, np.minimum(most[alone], grown), most[alone])
    age_ms = -(-age[alone] // 1000)
    told["age_ms"][alone] = np.where(told["loss"][alone] == 0, 0, np.where(age[alone] == NA, NA, age_ms))
    return Figures(**told)
