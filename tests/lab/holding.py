"""A consumer that takes messages and does not finish them: what a quiesce has to wait for, and name."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dr_ctl.stomp_io.connection import ConnectionLost
from dr_ctl_lab.lab.clients.client import Came
from dr_ctl_lab.lab.clients.dialling import Dialler
from dr_ctl_lab.lab.traffic import TURN_S, Target
from tests.broker.driving import until


@contextmanager
def holding(target: Target, queue: str, client_id: str, count: int = 0) -> Iterator[None]:
    """Hold what a queue delivers, so many at least; named at the broker by its id. It comes again as long as it lasts,
    where it is let in."""
    over, held = threading.Event(), list[Came]()
    dialler = Dialler(target, headers={"client-id": client_id})
    subscribed = threading.Event()

    def hold() -> None:
        while (found := dialler.dial(over)) is not None:
            client = found[1]
            with suppress(ConnectionLost):
                client.subscribe([queue])
                subscribed.set()
                while not over.is_set():
                    held.extend(each for each in client.receive(TURN_S) if isinstance(each, Came))
                    client.beat()
            client.close(politely=False)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        until(lambda: subscribed.is_set() and len(held) >= count, why=f"{client_id} holds {count}")
        yield
    finally:
        over.set()
        thread.join(timeout=10)
