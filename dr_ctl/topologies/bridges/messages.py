"""The messages of a queue, read one by one, and the names by which both sites know the same message.

A message is the same at both sites by its origin: the site where a client sent it, and the number that it got there.
A broker stamps a copy with both. A message that bears a number and no origin was retried after it failed, and then its
copy has that number; or an ordinary divert brought it, and then its copy has the number that it has here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dr_ctl.jolokia.client import Ask, Listing, Reader
from dr_ctl.jolokia.errors import BadValue
from dr_ctl.topologies.artemis.shown import Shown
from dr_ctl.topologies.bridges.view import ORIGIN
from dr_ctl.topologies.common.view import Queue

NUMBER: Final = "_AMQ_ORIG_MESSAGE_ID"
PAGE: Final = 1000  # messages of one answer
COMPARED: Final = PAGE  # messages of a queue that are looked for in its copy, one by one
_DIVERTED: Final = "_AMQ_ORIG_ADDRESS"

Origin = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Message:
    """`origins` are the names that its copy may have; a message that is `forwarded` has no copy, because its sender
    wrote that it comes from elsewhere. `copied` is the name that the peer's broker stamped it with, if it is a copy.
    `properties` are its sender's, None where the broker shows neither these nor where it comes from."""

    origins: frozenset[Origin]
    copied: Origin | None
    forwarded: bool
    properties: Mapping[str, Any] | None

    @property
    def named(self) -> bool:
        """Say whether its broker shows what it is called."""
        return self.properties is not None

    @property
    def name(self) -> Origin:
        return min(self.origins)

    def id(self, header: str) -> str:
        """The id that consumers write down: the producer's, else the origin and the number."""
        given = (self.properties or {}).get(header)
        return str(given) if isinstance(given, str | int) else f"{self.name[0]}:{self.name[1]}"


def pages(reader: Reader, queue: Queue, own: str, *, timeout_s: float) -> Iterator[list[Message]]:
    """A queue's messages, the last ones first, in pages: a copy's newest lie there, whatever their priority. `own` is
    the name of the broker's site in origins. Raises `BrokerError`."""
    for page in range(-(-queue.depth // PAGE), 0, -1):
        [answer] = reader.look([Ask(queue.bean, Listing.BROWSE, (page, PAGE))], timeout_s=timeout_s)
        try:
            yield [_message(row, own) for row in answer.value()]
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise BadValue(f"{reader.url}: a message of {queue.name} is not as expected: {error}") from error


def _message(row: Mapping[str, Any], own: str) -> Message:
    shown = Shown.of(row)
    here = (own, shown.number)
    if shown.sender is None or shown.broker is None:
        return Message(frozenset({here}), None, forwarded=False, properties=None)
    # A bridge writes the origin as a sender would.
    origin, number = shown.sender.get(ORIGIN), shown.broker.get(NUMBER)
    stamped = (str(origin), int(number)) if origin is not None and origin != own and number is not None else None
    if stamped is not None and _DIVERTED in shown.broker:
        return Message(frozenset({stamped}), stamped, forwarded=False, properties=shown.sender)
    origins = {here} if number is None else {here, (own, int(number))}
    return Message(frozenset(origins), None, forwarded=origin not in (None, own), properties=shown.sender)
