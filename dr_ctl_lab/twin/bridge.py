"""A bridge carries messages from a queue of one broker to an address of another."""

from collections import deque
from typing import Final

from dr_ctl_lab.twin.clock import Clock
from dr_ctl_lab.twin.messages import Message, Queue, Reason, Taker

CREDITS: Final = 5000


class Bridge(Taker):
    """Takes from a queue while connected; a message stays there until its confirmation is back. Only a connected bridge
    is a consumer of its queue. A stopped bridge does not connect.

    Messages under way at a break are forwarded again, so the two counters differ by their number from then on."""

    def __init__(self, name: str, queue: Queue, address: str, clock: Clock) -> None:
        self.name, self.queue, self.address, self._clock = name, queue, address, clock
        self.delay_s = 0.0
        self.started = self.connected = False
        self.forwarded = self.acked = 0
        self.held: deque[tuple[float, Message]] = deque()
        self.back: deque[tuple[float, Message]] = deque()
        self.refused: list[Message] = []  # messages that the target has already; they stay in delivery for ever

    @property
    def ready(self) -> bool:
        return self.connected and len(self.held) + len(self.back) < CREDITS

    def take(self, queue: Queue, message: Message) -> None:
        del queue
        self.held.append((self._clock.now_s() + self.delay_s, message))
        self.forwarded += 1

    def outgoing(self, message: Message) -> Message:
        """The message as the peer gets it."""
        return message

    def stop(self) -> None:
        self.started = False
        self.drop()

    def connect(self) -> None:
        if not self.connected:
            self.connected = True
            self.queue.takers.append(self)
            self.queue.dispatch()

    def drop(self) -> None:
        """Lose the connection: unconfirmed messages stand in the queue again, in order."""
        if not self.connected:
            return
        self.connected = False
        self.queue.takers.remove(self)
        for message in reversed([*self.refused, *(case for _, case in (*self.back, *self.held))]):
            self.queue.give_back(message)
        self._forget()

    def fell(self) -> None:
        """Forget all state, because the broker died."""
        self.started = self.connected = False
        self.forwarded = self.acked = 0
        self._forget()

    def arrived(self, confirmed_s: float) -> Message:
        """Hand over the next message; its confirmation comes at `confirmed_s`."""
        _, message = self.held.popleft()
        self.back.append((confirmed_s, message))
        return message

    def refuse(self) -> None:
        """The last that arrived was not taken, and is never confirmed."""
        self.refused.append(self.back.pop()[1])

    def confirm(self, now_s: float) -> None:
        while self.back and self.back[0][0] <= now_s:
            _, message = self.back.popleft()
            # The message may be gone meanwhile, with its queue.
            if message.number in self.queue.messages:
                self._done(message)
            self.acked += 1
        self.queue.dispatch()

    def _done(self, message: Message) -> None:
        """The peer has it."""
        self.queue.remove(message, Reason.NORMAL)

    def due_s(self) -> list[float]:
        """When something of it is due."""
        return [case[0][0] for case in (self.held, self.back) if case]

    def _forget(self) -> None:
        self.held.clear()
        self.back.clear()
        self.refused.clear()
