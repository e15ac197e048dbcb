"""A queue as a look tells it, without a look."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dr_ctl.topologies.common.view import Queue


def queue(name: str, bean: str, depth: int = 0, **more: Any) -> Queue:
    """A lasting queue of clients in which nothing has moved since its messages came."""
    usual = Queue(
        name=name,
        address=name,
        routing="anycast",
        bean=bean,
        depth=depth,
        delivering=0,
        scheduled=0,
        consumers=0,
        paused=False,
        added=depth,
        acked=0,
        removed=0,
        durable=True,
        temporary=False,
        internal=False,
        ring=False,
        last_value=False,
        dead_letter_address=None,
        expiry_address=None,
    )
    return replace(usual, **more)
