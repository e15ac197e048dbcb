"""The bean of a Classic broker's queue: attributes and operations."""

from typing import Any, Final

from dr_ctl_lab.twin.bean import Operations
from dr_ctl_lab.twin.classic.broker import DLQ, ClassicBroker
from dr_ctl_lab.twin.classic.composite import ORIGINAL
from dr_ctl_lab.twin.classic.listings import browsed, row, selected
from dr_ctl_lab.twin.messages import Counters, Message, Queue, Reason
from dr_ctl_lab.twin.parts import BrokerError

TEXT: Final = "java.lang.String"
_ANY: Final = 2**31 - 1


def attributes(broker: ClassicBroker, queue: Queue) -> dict[str, Any]:
    counters = queue.counters
    return {
        "Name": queue.name,
        "QueueSize": len(queue.messages),
        "InFlightCount": broker.held(queue),
        "EnqueueCount": counters.added,
        "DequeueCount": counters.acknowledged + counters.killed + counters.expired,
        "DispatchCount": broker.dispatched[queue.name],
        "ForwardCount": broker.forwarded[queue.name],
        "ExpiredCount": counters.expired,
        "ConsumerCount": broker.consumers(queue),
        "ProducerCount": 0,
        "StoreMessageSize": sum(message.size for message in queue.messages.values()),
        "DuplicateFromStoreCount": 0,
        "CursorMemoryUsage": 0,
        "MemoryPercentUsage": 0,
        "MaxPageSize": 200,
        "Options": "",
        "Paused": queue.paused,
        "DLQ": queue.name == DLQ,
    }


def operations(broker: ClassicBroker, queue: Queue) -> Operations:
    actions = _Actions(broker, queue)
    return {
        "browse()": lambda: browsed(broker, queue),
        f"browse({TEXT})": lambda selector: browsed(broker, queue, selector),
        f"getMessage({TEXT})": actions.get,
        f"removeMessage({TEXT})": actions.remove,
        f"removeMatchingMessages({TEXT})": actions.remove_matching,
        f"removeMatchingMessages({TEXT},int)": actions.remove_matching,
        f"moveMessageTo({TEXT},{TEXT})": lambda ident, to: actions.move(actions.with_id(ident), to) > 0,
        f"moveMatchingMessagesTo({TEXT},{TEXT})": actions.move_matching,
        f"moveMatchingMessagesTo({TEXT},{TEXT},int)": actions.move_matching,
        f"copyMatchingMessagesTo({TEXT},{TEXT})": actions.copy_matching,
        f"retryMessage({TEXT})": lambda ident: actions.retry(actions.with_id(ident)) > 0,
        "retryMessages()": lambda: actions.retry(list(queue.messages.values())),
        f"sendTextMessage({TEXT})": lambda body: actions.send({}, body),
        f"sendTextMessage(java.util.Map,{TEXT})": actions.send,
        "purge()": actions.purge,
        "pause()": actions.pause,
        "resume()": actions.resume,
        "resetStatistics()": actions.reset,
    }


class _Actions:
    def __init__(self, broker: ClassicBroker, queue: Queue) -> None:
        self._broker, self._queue = broker, queue

    def with_id(self, ident: str) -> list[Message]:
        """The message with that id, even in delivery."""
        producer, _, sequence = ident.rpartition(":")
        result = self._queue.by_origin.get((producer, int(sequence))) if sequence.isdecimal() else None
        return [] if result is None else [result]

    def _matching(self, selector: str, limit: int) -> list[Message]:
        wanted = selected(selector)
        return [message for message in self._queue.messages.values() if wanted(message)][:limit]

    def get(self, ident: str) -> dict[str, Any] | None:
        return next((row(self._queue, item) for item in self.with_id(ident)), None)

    def _remove(self, messages: list[Message]) -> int:
        for message in messages:
            self._broker.remove(self._queue, message, Reason.KILLED)
        return len(messages)

    def remove(self, ident: str) -> bool:
        return self._remove(self.with_id(ident)) > 0

    def remove_matching(self, selector: str, limit: int = _ANY) -> int:
        return self._remove(self._matching(selector, limit))

    def purge(self) -> None:
        self._remove(list(self._queue.messages.values()))

    def move(self, messages: list[Message], to: str) -> int:
        for message in messages:
            self._broker.remove(self._queue, message)
            self._broker.put_into(self._queue, message, to)
        return len(messages)

    def move_matching(self, selector: str, to: str, limit: int = _ANY) -> int:
        return self.move(self._matching(selector, limit), to)

    def copy_matching(self, selector: str, to: str) -> int:
        messages = self._matching(selector, _ANY)
        for message in messages:
            self._broker.put_into(self._queue, message, to)
        return len(messages)

    def retry(self, messages: list[Message]) -> int:
        """Move messages to the queues that they came from."""
        origins = [(message, message.headers.get(ORIGINAL, "").removeprefix("/queue/")) for message in messages]
        return sum(self.move([message], to) for message, to in origins if to)

    def send(self, headers: dict[str, str], body: str) -> str:
        """Refuse: a message sent by management has no login."""
        del headers, body
        raise BrokerError("javax.jms.JMSSecurityException", "User name [null] or password is invalid.")

    def pause(self) -> None:
        self._queue.paused = True

    def resume(self) -> None:
        self._queue.paused = False
        self._queue.dispatch()

    def reset(self) -> None:
        self._queue.counters = Counters()
