"""Messages that are removed at one site or copied to the other, by the ids that producers gave them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dr_ctl.core.errors import BrokerError, TimedOut
from dr_ctl.core.model import Json
from dr_ctl.core.system import growing_s
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.classic import ids
from dr_ctl.topologies.classic.ids import BATCH, MOST, browsed, connected
from dr_ctl.topologies.common.access import Gate
from dr_ctl.topologies.common.calls import batches, call
from dr_ctl.topologies.fanout.view import BrokerView

COPY: Final = "copy"  # the queue
IDS: Final = "ids"
CONSUMED: Final = "they were consumed at the other site"
LACKING: Final = "they lie at the other site only"
SILENT_S: Final = 10.0
AT_ONCE: Final = 100  # on their way without a receipt
# Headers that the broker adds to a message, not its producer; `content-length` tells bytes from text.
_ITS: Final = frozenset(
    {"destination", "subscription", "message-id", "ack", "redelivered", "receipt", "original-destination"}
)
_BODIES: Final = frozenset({"Text", "BodyLength"})
_TYPED: Final = ("Boolean", "Byte", "Double", "Float", "Int", "Long", "Short")


def copies(view: BrokerView, queue: str, wanted: Collection[str]) -> Iterator[Call]:
    """Put these messages down there, as they lie at the other site."""
    for batch in batches(wanted, BATCH):
        asked: dict[str, Json] = {COPY: queue, IDS: [*batch]}
        yield call(view, Goal.COPY, queue, asked, f"copy {len(batch)} message(s) of {queue}")


def may_remove(view: BrokerView) -> list[Call]:
    """Plan a removal; the run finds out which messages."""
    return [
        ids.may_remove(view, queue, CONSUMED, view.own.id_header)
        for queue in view.business.values()
        if queue.dead_letter_address is None
    ]


def may_copy(view: BrokerView) -> list[Call]:
    return [
        call(view, Goal.COPY, name, {COPY: name, IDS: ["…"]}, f"copy them to {name} by their ids", LACKING, MOST)
        for name, queue in view.business.items()
        if queue.dead_letter_address is None
    ]


@dataclass(frozen=True, slots=True)
class CopiedMessage:
    """A message as a producer would send it again."""

    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Lacking:
    """Ids of messages that a site lacks: those that STOMP carries whole, and those that it `cannot`."""

    can: frozenset[str]
    cannot: frozenset[str]

    @classmethod
    def of(cls, rows: Mapping[str, Mapping[str, Any]]) -> Lacking:
        """Tell them by how the console shows each: STOMP itself gives such a message an empty body, and no sign."""
        can = frozenset(ident for ident, row in rows.items() if _is_carried(row))
        return cls(can, frozenset(rows) - can)


def _is_carried(row: Mapping[str, Any]) -> bool:
    """Say whether a message is text or bytes, and its properties are texts."""
    return not _BODIES.isdisjoint(row) and not any(row.get(f"{kind}Properties") for kind in _TYPED)


class CannotCopy(BrokerError):
    """A message cannot be read whole, or cannot be put down."""


def read(gate: Gate, queue: str, header: str, wanted: Collection[str]) -> dict[str, CopiedMessage]:
    """Read the messages of a queue that bear one of these ids. Raises `BrokerError`."""
    found = {}
    for frame in browsed(gate, queue):
        ident = frame.headers.get(header)
        if ident in wanted:
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
            until = growing_s() + SILENT_S
            while waiting:
                frames = connection.receive(0.5)
                waiting -= {each.headers.get("receipt-id", "") for each in frames if each.cmd == "RECEIPT"}
                if waiting and growing_s() > until:
                    raise TimedOut(f"{gate.address}: {len(waiting)} message(s) of {queue} were not confirmed")
    finally:
        connection.close()
