"""The names of a Classic broker's management beans. Their parts are encoded and lose letters: a queue's true name is
read from its bean, never taken out of the bean's name."""

from dataclasses import dataclass
from typing import Final, Self

from dr_ctl.jolokia.client import NOBODY
from dr_ctl.jolokia.values import RUNTIME, Fields, parts

__all__ = ("NOBODY", "RUNTIME", "parts")

DOMAIN: Final = "org.apache.activemq"
ANY_BROKER: Final = f"{DOMAIN}:type=Broker,brokerName=*"
_ENCODED: Final = {":": "_", ",": "_", "'": "_", '"': "_", "?": "&qe;", "=": "&amp;", "*": "&ast;"}


# The order matters: a message that comes between the two is counted twice, and makes a listing too short, never whole.
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


def all_connections(name: str) -> str:
    """Name every connection once: a connection has a bean by client id and another by address."""
    return f"{connector(name)},connectionViewType=clientId,connectionName=*"


def network(name: str, which: str = "*") -> str:
    return f"{broker(name)},connector=networkConnectors,networkConnectorName={which}"


def all_bridges(name: str) -> str:
    """Name the bridges of network connectors; a connector that is stopped, or whose peer is away, has none."""
    return f"{network(name)},networkBridge=*"


def queue(name: str, which: str = "*") -> str:
    return f"{broker(name)},destinationType=Queue,destinationName={which}"


def all_consumers(name: str) -> str:
    return f"{queue(name)},endpoint=Consumer,clientId=*,consumerId=*"


def all_transactions(name: str) -> str:
    """Name the prepared transactions that a start of the broker has found in its store."""
    return f"{broker(name)},transactionType=RecoveredXaTransaction,xid=*"
