"""A bridge forwards messages from a queue of one broker to an address of another."""

from collections import deque
from typing import Final

from dr_ctl_lab.twin.clock import Clock
from dr_ctl_lab.twin.messages import Consumer, Message, Queue, Reason

CREDITS: Final = 5000


class Bridge(Consumer):
    """Consumes its queue while connected; a message stays there until the peer has confirmed it. A stopped bridge does
    not connect. Messages under way at a break are forwarded again; from then on `forwarded` and `acked` differ by their
    number."""

    def __init__(self, name: str, queue: Queue, address: str, clock: Clock) -> None:
        self.name, self.queue, self.address, self._clock = name, queue, address, clock
        self.delay_s = 0.0
        self.started = self.connected = False
        self.forwarded = self.acked = 0
        self.outbound: deque[tuple[float, Message]] = deque()
        self.confirmations: deque[tuple[float, Message]] = deque()
        self.refused: list[Message] = []  # duplicates at the target: they stay in delivery for ever

    @property
    def ready(self) -> bool:
        return self.connected and len(self.outbound) + len(self.confirmations) < CREDITS

    def take(self, queue: Queue, message: Message) -> None:
        del queue
        self.outbound.append((self._clock.now_s() + self.delay_s, message))
        self.forwarded += 1

    def outgoing(self, message: Message) -> Message:
        """Return the message as the peer gets it."""
        return message

    def stop(self) -> None:
        self.started = False
        self.drop()

    def connect(self) -> None:
        if not self.connected:
            self.connected = True
            self.queue.consumers.append(self)
            self.queue.dispatch()

    def drop(self) -> None:
        """Lose the connection: unconfirmed messages return to the queue, in order."""
        if not self.connected:
            return
        self.connected = False
        self.queue.consumers.remove(self)
        for message in reversed([*self.refused, *(item for _, item in (*self.confirmations, *self.outbound))]):
            self.queue.give_back(message)
        self._forget()

    def on_death(self) -> None:
        """Reset all state, because the broker died."""
        self.started = self.connected = False
        self.forwarded = self.acked = 0
        self._forget()

    def hand_over(self, confirmed_s: float) -> Message:
        """Hand over the next message; its confirmation comes at `confirmed_s`."""
        _, message = self.outbound.popleft()
        self.confirmations.append((confirmed_s, message))
        return message

    def refuse(self) -> None:
        """Note that the target refused the last message: it is never confirmed."""
        self.refused.append(self.confirmations.pop()[1])

    def confirm(self, now_s: float) -> None:
        while self.confirmations and self.confirmations[0][0] <= now_s:
            _, message = self.confirmations.popleft()
            # The message may have been removed meanwhile, with its queue.
            if message.number in self.queue.messages:
                self._on_confirmed(message)
            self.acked += 1
        self.queue.dispatch()

    def _on_confirmed(self, message: Message) -> None:
        """Remove a message that the peer has."""
        self.queue.remove(message, Reason.NORMAL)

    def due_s(self) -> list[float]:
        """The times of the next delivery and of the next confirmation."""
        return [pending[0][0] for pending in (self.outbound, self.confirmations) if pending]

    def _forget(self) -> None:
        self.outbound.clear()
        self.confirmations.clear()
        self.refused.clear()
