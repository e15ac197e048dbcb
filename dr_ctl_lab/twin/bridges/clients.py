"""Idempotent consumers, which skip ids in their site's store and tell the other site the ids of processed messages."""

from dr_ctl_lab.twin.bridges.broker import BridgesBroker


def work_off(broker: BridgesBroker, name: str, *, most: int | None = None) -> list[str]:
    """Consume a queue as its clients at that site would; returns the processed ids, at most `most`. A closed queue
    gives no message."""
    worked: list[str] = []
    queue = broker.queue(name)
    while broker.serves_queue(name) and (most is None or len(worked) < most):
        message = next(queue.live(), None)
        if message is None:
            break
        ident = broker.identity(message)
        if not broker.ids.knows(name, ident):
            worked.append(ident)
            # After the work: a death before this line repeats the work; writing first could lose a message.
            broker.ids.add(name, ident, local=True)
            broker.notify(name, ident)
        broker.remove(queue, message)
    return worked
