"""Idempotent consumers: they skip what the store of their site knows, and tell the other site what they have done."""

from __future__ import annotations

from dr_ctl_lab.twin.bridges.broker import BridgesBroker


def work_off(broker: BridgesBroker, name: str, *, most: int | None = None) -> list[str]:
    """Consume a queue as its clients at that site would; the ids of what was worked on, at most so many. Nothing comes
    out of a queue that is closed."""
    worked: list[str] = []
    queue = broker.queue(name)
    while broker.serves_queue(name) and (most is None or len(worked) < most):
        message = next(queue.live(), None)
        if message is None:
            break
        ident = broker.identity(message)
        if not broker.ids.knows(name, ident):
            worked.append(ident)
            # After the work: who dies before this works twice, who wrote it first would lose a message.
            broker.ids.add(name, ident, here=True)
            broker.notify(name, ident)
        broker.remove(queue, message)
    return worked
