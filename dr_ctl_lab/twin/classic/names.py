"""Names of a Classic broker's management beans: without quotes, with special characters replaced."""

from functools import lru_cache
from typing import Final

DOMAIN: Final = "org.apache.activemq"
RUNTIME: Final = "java.lang:type=Runtime"
# The first four all become the same character.
_WRITTEN: Final = {":": "_", ",": "_", "'": "_", '"': "_", "?": "&qe;", "=": "&amp;", "*": "&ast;"}


@lru_cache(maxsize=65536)
def encoded(text: str) -> str:
    return "".join(_WRITTEN.get(letter, letter) for letter in text)


def server(broker: str) -> str:
    return f"{DOMAIN}:type=Broker,brokerName={encoded(broker)}"


@lru_cache(maxsize=65536)
def destination(broker: str, kind: str, name: str) -> str:
    return f"{server(broker)},destinationType={kind},destinationName={encoded(name)}"


def queue(broker: str, name: str) -> str:
    return destination(broker, "Queue", name)


@lru_cache(maxsize=65536)
def connector(broker: str, name: str) -> str:
    return f"{server(broker)},connector=clientConnectors,connectorName={encoded(name)}"


def connection(broker: str, listener: str, client: str) -> str:
    return f"{connector(broker, listener)},connectionViewType=clientId,connectionName={encoded(client)}"


def network(broker: str, name: str) -> str:
    return f"{server(broker)},connector=networkConnectors,networkConnectorName={encoded(name)}"


def consumer(broker: str, kind: str, name: str, client: str, ident: str) -> str:
    ends = f"endpoint=Consumer,clientId={encoded(client)},consumerId={encoded(ident)}"
    return f"{destination(broker, kind, name)},{ends}"
