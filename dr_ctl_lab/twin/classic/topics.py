"""Topics and temporary queues of a Classic broker. Only present subscribers get a message."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Protocol

CONSUMED: Final = "/topic/ActiveMQ.Advisory.MessageConsumed.Queue."


class Subscriber(Protocol):
    """A subscriber of a topic."""

    def on_message(self, headers: Mapping[str, str], body: bytes) -> None: ...


class Topics:
    """`subscribed`: the destinations of each subscriber; `*` stands for one part, `>` for all that follow."""

    def __init__(self) -> None:
        self.subscribed: dict[Subscriber, str] = {}

    def publish(self, destination: str, headers: Mapping[str, str], body: bytes) -> None:
        for subscriber in [
            subscriber for subscriber, wanted in self.subscribed.items() if matches(wanted, destination)
        ]:
            subscriber.on_message({**headers, "destination": destination}, body)


@lru_cache(maxsize=1024)
def _pattern(wanted: str) -> re.Pattern[str]:
    parts = {"*": r"[^.]+", ">": r".+"}
    return re.compile(r"\.".join(parts.get(word) or re.escape(word) for word in wanted.split(".")))


def matches(wanted: str, name: str) -> bool:
    return any(_pattern(word).fullmatch(name) for word in wanted.split(","))
