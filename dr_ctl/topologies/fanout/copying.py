"""Messages that are read at one site and put down at the other, each with all that its producer said of it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dr_ctl.core.errors import BrokerError, TimedOut
from dr_ctl.topologies.classic.browsing import browsed, connected
from dr_ctl.topologies.common.access import Gate

SILENT_S: Final = 10.0
AT_ONCE: Final = 100  # on their way without a receipt
# Headers that the broker adds to a message, not its producer; `content-length` tells bytes from text.
_ITS: Final = frozenset(
    {"destination", "subscription", "message-id", "ack", "redelivered", "receipt", "original-destination"}
)


@dataclass(frozen=True, slots=True)
class CopiedMessage:
    """A message as a producer would send it again."""

    headers: Mapping[str, str]
    body: bytes


class CannotCopy(BrokerError):
    """A message cannot be read whole, or cannot be put down."""


def read(gate: Gate, queue: str, header: str, wanted: Collection[str]) -> dict[str, CopiedMessage]:
    """Read the messages of a queue that bear one of these ids. Raises `BrokerError`."""
    found = {}
    for frame in browsed(gate, queue):
        ident = frame.headers.get(header)
        if ident in wanted:
            if "transformation-error" in frame.headers:
                raise CannotCopy(
                    f"{queue}: message {ident} is neither text nor bytes, and cannot be copied over STOMP",
                    remedy="Copy such messages by a client of their own, with the same id.",
                )
            kept = {name: value for name, value in frame.headers.items() if name not in _ITS}
            found[ident] = CopiedMessage(kept, frame.body or b"")
    return found


def put(gate: Gate, queue: str, messages: Sequence[CopiedMessage]) -> None:
    """Send these messages as durable, and wait until the broker confirms each. Raises `BrokerError`: confirmed messages
    stay there."""
    connection = connected(gate)
    try:
        for start in range(0, len(messages), AT_ONCE):
            waiting = set()
            for number, message in enumerate(messages[start : start + AT_ONCE], start):
                headers = {**message.headers, "persistent": "true", "receipt": str(number)}
                connection.stomp.send(f"/queue/{queue}", message.body, headers=headers)
                waiting.add(str(number))
            until = time.monotonic() + SILENT_S
            while waiting:
                frames = connection.receive(0.5)
                waiting -= {each.headers.get("receipt-id", "") for each in frames if each.cmd == "RECEIPT"}
                if waiting and time.monotonic() > until:
                    raise TimedOut(f"{gate.address}: {len(waiting)} message(s) of {queue} were not confirmed")
    finally:
        connection.close()
