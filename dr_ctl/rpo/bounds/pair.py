"""The bounds of a pair: outflows together, and queue by queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from dr_ctl.core.model import Role
from dr_ctl.rpo.bounds.looks import Looks
from dr_ctl.rpo.bounds.outflow import Outflow, Part, since_of
from dr_ctl.rpo.bounds.received import Arrived, Received
from dr_ctl.rpo.bounds.staged import done_and_there
from dr_ctl.rpo.bounds.things import Counter, Thing
from dr_ctl.rpo.history.newest import OUTFLOWS, WINDOW_US, Count, Recent
from dr_ctl.rpo.series.columns import SHARED

SENDS: Final = ("mirror", "mixed")
ACKS: Final = ("acks", "mixed")


@dataclass(frozen=True)
class Pair:
    """`left`: by queue what lost acknowledgements have left at the other site (None: not read); `delivering`: by queue
    the most that clients had."""

    name: str
    outflows: Sequence[Outflow]
    queues: dict[str, Thing]
    left: dict[str, int | None]
    delivering: dict[str, int | None]
    end_us: int

    @classmethod
    def of(cls, name: str, looks: Looks | None, seen: Recent, end_us: int, received: Received | None = None) -> Self:
        things = {} if looks is None else looks.things
        of_pair = {key[1:]: thing for key, thing in things.items() if key[0] == name}
        flows = {key: thing for key, thing in of_pair.items() if key[0] in OUTFLOWS}
        last_us = max((thing.last_us for thing in flows.values()), default=0)
        # A queue unknown to the last minutes is gone; a queue missing only in the last look may not have been read.
        kept = {
            key[1]: thing for key, thing in of_pair.items() if key[0] == "queue" and thing.last_us > last_us - WINDOW_US
        }
        left = _left(seen, name, [flow for kind, flow in flows if kind == "acks" and flow != SHARED])
        counts = seen.queues(name)
        come = (lambda _, __: Arrived()) if received is None else partial(received.since, name)
        outflows = [] if looks is None else [
            Outflow(kind, looks.number(name, flow), thing, _served(kept, kind, flow, list(flows)), looks, end_us, come,
                    (left.get(flow) or 0) if kind == "acks" else 0)
            for (kind, flow), thing in flows.items()
        ]  # fmt: skip
        return cls(name, outflows, kept, left, {queue: _most_delivering(counts[queue]) for queue in kept}, end_us)

    @property
    def lost(self) -> Part | None:
        return added([each.lost for each in self._of(SENDS)])

    @property
    def twice(self) -> int | None:
        shipping = added([each.twice for each in self._of(ACKS)])
        return total([None if shipping is None else shipping.at_most, *self.delivering.values()])

    @property
    def lost_read_us(self) -> int | None:
        return _read_us(self._of(SENDS), [each.lost for each in self._of(SENDS)])

    @property
    def twice_read_us(self) -> int | None:
        return _read_us(self._of(ACKS), [each.twice for each in self._of(ACKS)])

    @property
    def age_us(self) -> int | None:
        """Of the oldest that its outflows may take with them."""
        ages = [each.age_us for each in self._of(SENDS)]
        known = [each for each in ages if each is not None]
        return max(known, default=None) if len(known) == len(ages) else None

    def queue_lost(self, name: str) -> int | None:
        """At most what the queue held and got, and what its outflow can take with it."""
        if name not in self.queues:
            return 0 if self.outflows else None
        own = total([int(self.queues[name].depth[-1]), self._grown(name, "added", SENDS)])
        shipping = [each.lost for each in self._of(SENDS) if name in each.queues]
        return least([own, *(None if each is None else each.at_most for each in shipping)])

    def queue_twice(self, name: str) -> int | None:
        """At most what lay in the outflow, what clients acknowledged since and what they had in delivery."""
        if name not in self.queues:
            return 0 if self.outflows else None
        waiting = [max(int(each.looked.depth[-1]), self.left.get(name) or 0) for each in self._of(ACKS)
                   if name in each.queues]  # fmt: skip
        own = total([*waiting, self._grown(name, "acked", ACKS), self.delivering[name]]) if waiting else None
        return least([own, self.twice])

    def class_lost(self, names: Sequence[str]) -> int | None:
        """The loss of a class. A class without a queue so far can lose at most the additions since the look."""
        whole = self.lost
        if names:
            return least([total([self.queue_lost(name) for name in names]), None if whole is None else whole.at_most])
        return total([since_of([each.pace], self.end_us - each.looked.last_us) for each in self._of(SENDS)] or [None])

    def _of(self, kinds: Sequence[str]) -> list[Outflow]:
        return [each for each in self.outflows if each.kind in kinds]

    def _grown(self, name: str, counter: Counter, kinds: Sequence[str]) -> int | None:
        """Since its last look, at its pace and with a burst of what its outflows of these kinds get: the queue itself
        is looked at too seldom to know one."""
        queue = self.queues[name]
        took_us = self.end_us - queue.last_us
        bursts = [each.burst for each in self._of(kinds) if took_us and name in each.queues]
        return total([since_of([queue.pace(counter)], took_us), max(bursts, default=0)])


def _served(queues: dict[str, Thing], kind: str, flow: str, flows: Sequence[tuple[str, str]]) -> dict[str, Thing]:
    """The queues of an outflow: the queue of its name, or all queues without an own outflow in this direction."""
    own = {name for of_kind, name in flows if of_kind in (SENDS if kind in SENDS else ACKS)}
    return {name: thing for name, thing in queues.items() if (name if name in own else SHARED) == flow}


def _left(seen: Recent, pair: str, names: Sequence[str]) -> dict[str, int | None]:
    flows, queues, staged = seen.outflows(pair), seen.queues(pair), seen.staged(pair)
    serving = {us for us, role in seen.roles if role == Role.SERVING.value}
    return {
        name: done_and_there(staged.get(name, ()), queues.get(name, ()), flows.get(("mirror", name), ()), serving)
        for name in names
    }


def _most_delivering(looks: Sequence[Count]) -> int | None:
    if looks[-1].delivering is None:
        return None
    return max(each.delivering or 0 for each in looks if each.us > looks[-1].us - WINDOW_US)


def _read_us(outflows: Sequence[Outflow], parts: Sequence[Part | None]) -> int | None:
    """The oldest of the looks that they rest on."""
    times = [each.looked.last_us if part is None else part.us for each, part in zip(outflows, parts, strict=True)]
    return min(times, default=None)


def added(parts: Sequence[Part | None]) -> Part | None:
    """The sum of the parts, as of their oldest look; an unknown part makes the sum unknown."""
    known = [each for each in parts if each is not None]
    if not known or len(known) < len(parts):
        return None
    there, since = (sum(getattr(each, of) for each in known) for of in ("there", "since"))
    rate, received = sum(each.rate for each in known), sum(each.received for each in known)
    return Part(there, since, min(each.us for each in known), rate, received)


def total(parts: Iterable[int | None]) -> int | None:
    """The sum; an unknown part makes the sum unknown."""
    figures = list(parts)
    return None if None in figures else sum(each or 0 for each in figures)


def least(bounds: Iterable[int | None]) -> int | None:
    """Upper bounds of the same: the smallest one that is known."""
    return min((each for each in bounds if each is not None), default=None)
