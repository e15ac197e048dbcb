"""The operations of a broker that dr-ctl calls, each with its signature; the requests made of them; and the questions
whether the console's policy lets them through. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dr_ctl.jolokia.client import Listing, MayCall
from dr_ctl.topologies.classic import beans
from dr_ctl.topologies.common.calls import PAUSE, RESUME, START, STOP, Requests, request

if TYPE_CHECKING:
    from dr_ctl.topologies.common.calls import Request

MOVE_MATCHING: Final = "moveMatchingMessagesTo(java.lang.String,java.lang.String)"
REMOVE_MATCHING: Final = "removeMatchingMessages(java.lang.String)"
REMOVE_QUEUE: Final = "removeQueue(java.lang.String)"
MESSAGE_ID: Final = "JMSMessageID"
DOCUMENT: Final = "document"
TEXT: Final = "text"


@dataclass(frozen=True, slots=True)
class Permit:
    """An operation on a kind of bean, as the console's policy sees it: `kind` as in a policy's file."""

    operation: str
    kind: str

    @property
    def name(self) -> str:
        return self.operation.partition("(")[0]

    def asked(self, broker: str) -> tuple[MayCall, MayCall]:
        """Ask whether it may be called, at a bean of that kind that does not exist. The operation is asked for as
        dr-ctl calls it, and by its name alone: a policy that denies the name lets one with its signature pass."""
        bean = beans.broker(broker if self.kind else beans.NOBODY)
        bean += f",{self.kind.replace('*', beans.NOBODY)}" if self.kind else ""
        return MayCall(bean, self.operation), MayCall(bean, self.name)

    @property
    def what(self) -> str:
        return _WORDS[self.kind]

    @property
    def line(self) -> str:
        bean = ",".join(filter(None, (f"{beans.DOMAIN}:type=Broker,brokerName=*", self.kind)))
        both = "".join(f"<operation>{name}</operation>" for name in (self.name, self.operation))
        return f"<allow><mbean><name>{bean}</name>{both}</mbean></allow>"


_CONNECTOR: Final = "connector=clientConnectors,connectorName=*"
_NETWORK: Final = "connector=networkConnectors,networkConnectorName=*"
_QUEUE: Final = "destinationType=Queue,destinationName=*"
_WORDS: Final = {_CONNECTOR: "transport connectors", _NETWORK: "network connectors", _QUEUE: "queues", "": "the broker"}
CLOSES: Final = Permit(STOP, _CONNECTOR)
OPENS: Final = Permit(START, _CONNECTOR)
LINKS_UP: Final = Permit(START, _NETWORK)
LINKS_DOWN: Final = Permit(STOP, _NETWORK)
PAUSES: Final = Permit(PAUSE, _QUEUE)
RESUMES: Final = Permit(RESUME, _QUEUE)
REMOVES: Final = Permit(REMOVE_MATCHING, _QUEUE)
REMOVES_QUEUES: Final = Permit(REMOVE_QUEUE, "")
STOPS: Final = Permit(STOP, "")
LISTS: Final = Permit(Listing.BROWSE_ALL.value, _QUEUE)
MOVES: Final = Permit(MOVE_MATCHING, _QUEUE)
EVERY: Final = (CLOSES, OPENS, LINKS_UP, LINKS_DOWN, PAUSES, RESUMES, REMOVES, REMOVES_QUEUES, STOPS, LISTS, MOVES)


def by_ids(ids: Iterable[str], named: str = MESSAGE_ID) -> str:
    listed = ",".join("'" + id_.replace("'", "''") + "'" for id_ in ids)
    return f"{named} IN ({listed})"


class ClassicRequests(Requests):
    """No pause is lasting: a restart of the broker lifts it."""

    def queues(self, beginning: str) -> str:
        assert not beginning  # no Classic broker is asked for queues by the beginning of their names
        return beans.queue(self.broker)

    def write(self, name: str, text: str | None) -> Request:
        return {DOCUMENT: name, TEXT: text}

    def remove(self, name: str) -> Request:
        return {DOCUMENT: name}

    def probe(self, _name: str) -> None:
        return None

    def canary(self, _name: str) -> None:
        return None

    def remove_queue(self, name: str) -> Request:
        return request(beans.broker(self.broker), REMOVE_QUEUE, (name,))
