"""Topics and temporary queues of a Classic broker. Only present listeners hear a message."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Protocol

CONSUMED: Final = "/topic/ActiveMQ.Advisory.MessageConsumed.Queue."


class Listener(Protocol):
    """Somebody who subscribed."""

    def hear(self, headers: Mapping[str, str], body: bytes) -> None: ...


class Topics:
    """`subscribed`: of each listener, the destinations that it asked for, `*` for one part and `>` for what follows."""

    def __init__(self) -> None:
        self.subscribed: dict[Listener, str] = {}

    def publish(self, destination: str, headers: Mapping[str, str], body: bytes) -> None:
        for listener in [value for value, wanted in self.subscribed.items() if matches(wanted, destination)]:
            listener.hear({**headers, "destination": destination}, body)


@lru_cache(maxsize=1024)
def _pattern(wanted: str) -> re.Pattern[str]:
    parts = {"*": r"[^.]+", ">": r".+"}
    return re.compile(r"\.".join(parts.get(word) or re.escape(word) for word in wanted.split(".")))


def matches(wanted: str, name: str) -> bool:
    return any(_pattern(word).fullmatch(name) for word in wanted.split(","))
