"""A consumer that takes messages and does not finish them: what a quiesce has to wait for, and name."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from dr_ctl.stomp_io.connection import ConnectionLost
from dr_ctl_lab.lab.clients.client import Came, Client
from dr_ctl_lab.lab.clients.dialling import Dialler
from dr_ctl_lab.lab.traffic import TURN_S

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from dr_ctl_lab.lab.traffic import Target

PLENTY = 1024 * 1024


class HoldingConsumer:
    """Holds what a queue delivers until told to release it; named at the broker by its `client_id`."""

    def __init__(self, target: Target, queue: str, *, client_id: str, window: int = PLENTY) -> None:
        """`window` bounds, in bytes, how much the broker hands over unacknowledged."""
        self._dialler = Dialler(target, headers={"client-id": client_id})
        self._queue = queue
        self._window = window
        self._client_id = client_id
        self._end = threading.Event()
        self._release = threading.Event()
        self._subscribed = threading.Event()
        self._lock = threading.Lock()
        self._held: list[Came] = []
        self._thread = threading.Thread(target=self._run, name=f"holding-{client_id}", daemon=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, *, within_s: float = 10.0) -> Self:
        """Subscribe; TimeoutError where no site lets it in."""
        self._thread.start()
        if not self._subscribed.wait(within_s):
            self.close()
            raise TimeoutError(f"{self._client_id} was let in nowhere within {within_s:g} s")
        return self

    @property
    def held(self) -> tuple[str, ...]:
        """The ids of the messages in hand."""
        with self._lock:
            return tuple(each.ident for each in self._held)

    def wait_for(self, count: int, *, within_s: float = 10.0) -> tuple[str, ...]:
        """Wait until it holds at least so many; TimeoutError where it does not in time."""
        until = time.monotonic() + within_s
        while len(held := self.held) < count:
            if time.monotonic() > until:
                raise TimeoutError(f"{self._client_id} holds {len(held)} messages after {within_s:g} s, not {count}")
            time.sleep(0.01)
        return held

    def release(self) -> None:
        """Acknowledge all it holds, and from now on whatever comes."""
        self._release.set()

    def close(self) -> None:
        """Leave; what is held goes back to the broker. Twice is once."""
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while (found := self._dialler.dial(self._end)) is not None:
            _, client = found
            try:
                self._hold(client)
                client.close()
            except ConnectionLost:
                client.close(politely=False)
            with self._lock:
                self._held.clear()

    def _hold(self, client: Client) -> None:
        client.subscribe([self._queue], window_bytes=self._window)
        self._subscribed.set()
        while not self._end.is_set():
            came = [each for each in client.receive(TURN_S) if isinstance(each, Came)]
            with self._lock:
                self._held += came
            if self._release.is_set():
                with self._lock:
                    for each in self._held:
                        client.ack(each, confirm=None)
                    self._held.clear()
            client.beat()
