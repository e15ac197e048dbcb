"""The receipt of a finished drain is a document on the target's brokers. It holds the start of both brokers of a pair,
and a digest of all counters of business queues, which changes with every message that is added or removed. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dr_ctl.core.document import document, read
from dr_ctl.core.errors import UNREADABLE
from dr_ctl.core.model import brief
from dr_ctl.engine.plan import Call, Goal, Spec
from dr_ctl.rpo.core.starts import same_start
from dr_ctl.topologies.common.calls import call, remove_document
from dr_ctl.topologies.common.snapshot import Snapshot
from dr_ctl.topologies.common.view import Broker

HOLDS: Final = "the gate holds"


@dataclass(frozen=True, slots=True)
class Mark:
    start: str
    counters: str

    @classmethod
    def of(cls, view: Broker, spec: Spec | None = None) -> Mark:
        counters = [
            (queue.name, queue.depth, queue.added, queue.removed)
            for queue in view.link.counters
            if spec is None or spec.includes(view.unit_of(queue.name))
        ]
        return cls(view.start, hashlib.sha256(json.dumps(sorted(counters)).encode()).hexdigest())


def changes(before: Broker, now: Broker, moves: Callable[[str | None], bool]) -> list[str]:
    if before.start != now.start:
        return [f"{now} was restarted since the gate was seen to hold"]
    earlier, current = (
        {queue.name: (queue.depth, queue.added) for queue in view.link.counters} for view in (before, now)
    )
    changed = [queue for queue in current if moves(now.unit_of(queue)) and current[queue] != earlier.get(queue)]
    changed += sorted(queue for queue in earlier.keys() - current.keys() if moves(before.unit_of(queue)))
    return [f"{now}: something came or went since the gate was seen to hold: {brief(changed)}"] if changed else []


@dataclass(frozen=True, slots=True)
class Receipt:
    source: str
    target: str
    epoch: int
    at: str
    marks: Mapping[str, Mark]


def name(site: str) -> str:
    return f"dr-ctl.receipt.{site}"


def of(source: Broker, target: Broker, epoch: int, spec: Spec | None = None) -> Receipt:
    marks = {view.site: Mark.of(view, spec) for view in (source, target)}
    return Receipt(source.site, target.site, epoch, target.clock, marks)


def held_at(view: Broker) -> Receipt | None:
    """Return the receipt that is stored at a broker. An unreadable one matches no broker."""
    text = view.documents.get(name(view.site))
    if text is None:
        return None
    try:
        return read(Receipt, json.loads(text))
    except UNREADABLE:
        return Receipt("", "", 0, "a moment that cannot be read", {})


def changes_since(receipt: Receipt, views: Sequence[Broker], spec: Spec | None = None) -> list[str]:
    receipt_text, reasons = f"the receipt of {receipt.at}", list[str]()
    for view in views:
        mark, now = receipt.marks.get(view.site), Mark.of(view, spec)
        if mark is None:
            reasons.append(f"{receipt_text} does not cover {view.site}")
        elif not same_start(now.start, mark.start):
            reasons.append(f"{view} was restarted since {receipt_text}")
        elif now.counters != mark.counters:
            reasons.append(f"{view} has a queue whose counters moved since {receipt_text}")
    return reasons


def write(view: Broker, receipt: Receipt | None, when: str | None = None) -> tuple[Call, ...]:
    """Replace an older receipt. A plan names the receipt before it exists."""
    text = json.dumps(document(receipt), separators=(",", ":")) if receipt is not None else None
    request, summary = view.requests.write(name(view.site), text), f"write the receipt {name(view.site)}"
    writing = call(view, Goal.CREATE, name(view.site), request, summary, when)
    return (*strike(view, "there is an older one" if receipt is None else None), writing)


def strike(view: Broker, when: str | None = None) -> tuple[Call, ...]:
    if name(view.site) not in view.documents:
        return ()
    return (remove_document(view, name(view.site), f"remove the receipt {name(view.site)}", when),)


def removals(snapshot: Snapshot[Broker]) -> list[Call]:
    return [call for site in snapshot.sites for view in snapshot.views(site) for call in strike(view)]
