"""Idempotent consumers: they skip ids in their site's store, and send ids of processed messages to the other site."""

from dr_ctl_lab.twin.bridges.broker import BridgesBroker


def consume(broker: BridgesBroker, name: str, *, most: int | None = None) -> list[str]:
    """Consume a queue of that site until it is empty or closed, or `most` ids are processed; return those ids."""
    processed: list[str] = []
    queue = broker.queue(name)
    while broker.serves_queue(name) and (most is None or len(processed) < most):
        message = next(queue.available(), None)
        if message is None:
            break
        ident = broker.identity(message)
        if not broker.ids.knows(name, ident):
            processed.append(ident)
            # After the work: a death before this line repeats it; storing the id first could lose a message.
            broker.ids.add(name, ident, local=True)
            broker.notify(name, ident)
        broker.remove(queue, message)
    return processed
