"""The names of a Classic broker's management beans, the operations that dr-ctl calls there, and the tests whether the
console's policy permits them. Parts of names are encoded and lose letters: a queue's name is read from its bean, never
from the bean's name. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from dr_ctl.jolokia.client import NOBODY, Listing, MayCall
from dr_ctl.jolokia.values import RUNTIME, Fields, parts
from dr_ctl.topologies.common.calls import PAUSE, RESUME, START, STOP, Request, Requests, request

__all__ = ("NOBODY", "RUNTIME", "parts")

DOMAIN: Final = "org.apache.activemq"
ANY_BROKER: Final = f"{DOMAIN}:type=Broker,brokerName=*"
_ENCODED: Final = {":": "_", ",": "_", "'": "_", '"': "_", "?": "&qe;", "=": "&amp;", "*": "&ast;"}

MOVE_MATCHING: Final = "moveMatchingMessagesTo(java.lang.String,java.lang.String)"
REMOVE_MATCHING: Final = "removeMatchingMessages(java.lang.String)"
REMOVE_QUEUE: Final = "removeQueue(java.lang.String)"
MESSAGE_ID: Final = "JMSMessageID"
DOCUMENT: Final = "document"
TEXT: Final = "text"

# The order matters: a message that arrives between the two is counted twice, so a listing looks too short, not whole.
COUNT: Final = ("EnqueueCount", "QueueSize")


@dataclass(frozen=True, slots=True)
class Count:
    """The depth of a queue, and the number of messages that came since its broker's start."""

    depth: int
    came: int

    @classmethod
    def of(cls, fields: Fields) -> Self:
        return cls(fields.number("QueueSize"), fields.number("EnqueueCount"))


def part(name: str) -> str:
    return "".join(_ENCODED.get(letter, letter) for letter in name)


def broker(name: str) -> str:
    return f"{DOMAIN}:type=Broker,brokerName={part(name)}"


def connector(name: str, which: str = "*") -> str:
    return f"{broker(name)},connector=clientConnectors,connectorName={which}"


def network(name: str, which: str = "*") -> str:
    return f"{broker(name)},connector=networkConnectors,networkConnectorName={which}"


def all_bridges(name: str) -> str:
    """Name the bridges of network connectors; a connector that is stopped, or whose peer does not answer, has none."""
    return f"{network(name)},networkBridge=*"


def queue(name: str, which: str = "*") -> str:
    return f"{broker(name)},destinationType=Queue,destinationName={which}"


def all_consumers(name: str) -> str:
    return f"{queue(name)},endpoint=Consumer,clientId=*,consumerId=*"


def all_transactions(name: str) -> str:
    """Name the prepared transactions that a start of the broker has found in its store."""
    return f"{broker(name)},transactionType=RecoveredXaTransaction,xid=*"


@dataclass(frozen=True, slots=True)
class Permit:
    """An operation on a kind of bean, as a rule of the console's policy has it."""

    operation: str
    kind: str

    @property
    def name(self) -> str:
        return self.operation.partition("(")[0]

    def tests(self, name: str) -> tuple[MayCall, MayCall]:
        """Return two tests of the policy, at a bean of that kind that does not exist: for the operation as dr-ctl calls
        it, and for its name only, because a policy that denies the name permits the name with a signature."""
        bean = broker(name if self.kind else NOBODY)
        bean += f",{self.kind.replace('*', NOBODY)}" if self.kind else ""
        return MayCall(bean, self.operation), MayCall(bean, self.name)

    @property
    def what(self) -> str:
        return _KINDS[self.kind]

    @property
    def line(self) -> str:
        bean = ",".join(filter(None, (ANY_BROKER, self.kind)))
        operations = "".join(f"<operation>{name}</operation>" for name in (self.name, self.operation))
        return f"<allow><mbean><name>{bean}</name>{operations}</mbean></allow>"


_CONNECTOR: Final = "connector=clientConnectors,connectorName=*"
_NETWORK: Final = "connector=networkConnectors,networkConnectorName=*"
_QUEUE: Final = "destinationType=Queue,destinationName=*"
_KINDS: Final = {_CONNECTOR: "transport connectors", _NETWORK: "network connectors", _QUEUE: "queues", "": "the broker"}
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


def by_ids(ids: Iterable[str], id_name: str = MESSAGE_ID) -> str:
    listed = ",".join("'" + id_.replace("'", "''") + "'" for id_ in ids)
    return f"{id_name} IN ({listed})"


class ClassicRequests(Requests):
    """No pause is lasting: a restart of the broker lifts it."""

    def queue_pattern(self, prefix: str) -> str:
        assert not prefix  # no request to a Classic broker selects queues by prefix
        return queue(self.broker)

    def write(self, name: str, text: str | None) -> Request:
        return {DOCUMENT: name, TEXT: text}

    def remove(self, name: str) -> Request:
        return {DOCUMENT: name}

    def probe(self, _name: str) -> None:
        return None

    def canary(self, _name: str) -> None:
        return None

    def remove_queue(self, name: str) -> Request:
        return request(broker(self.broker), REMOVE_QUEUE, (name,))
