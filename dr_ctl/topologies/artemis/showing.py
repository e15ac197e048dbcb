"""Parts of what is shown and kept of a look, whatever joins the sites. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from dr_ctl.rpo.row import Row
from dr_ctl.topologies.common.view import Broker, Queue


@dataclass(frozen=True, slots=True)
class Carried:
    """What one closed broker still holds for its peer: messages that may be lost, acknowledgements that let a message
    come twice; by queue where that can be told. None: not read."""

    lost: int | None
    twice: int | None
    queues: Mapping[str, tuple[int, int | None]] | None


def drain_s(depth: int | None, rate: float | None) -> float | None:
    if depth == 0:
        return 0.0
    return round(depth / rate, 2) if depth is not None and rate is not None and rate > 0 else None


def counted(view: Broker, queue: Queue, at: datetime) -> Row:
    return Row(
        ts=at,
        site=view.site,
        pair=view.pair,
        kind="queue",
        name=queue.name,
        start=view.start,
        depth=queue.depth,
        delivering=queue.delivering,
        added=queue.added,
        removed=queue.removed,
        oldest_ms=queue.oldest_ms,
    )


def of_queue(view: Broker, queue: Queue, at: datetime) -> Row:
    return replace(counted(view, queue, at), acked=queue.acked)
