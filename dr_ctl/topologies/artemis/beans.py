"""The names of an Artemis broker's management beans."""

from typing import Final

from dr_ctl.jolokia.values import RUNTIME, parts, quote, unquote

__all__ = ("RUNTIME", "parts", "quote", "unquote")

DOMAIN: Final = "org.apache.activemq.artemis"
SECURITY: Final = "hawtio:type=security,area=jmx,name=ArtemisJMXSecurity"


def server(broker: str) -> str:
    return f"{DOMAIN}:broker={quote(broker)}"


def _part(name: str | None) -> str:
    return quote(name) if name is not None else "*"


# Without a name, each of these functions returns the pattern of all such beans.


def acceptor(broker: str, name: str | None = None) -> str:
    return f"{server(broker)},component=acceptors,name={_part(name)}"


def address(broker: str, name: str | None = None) -> str:
    return f"{server(broker)},component=addresses,address={_part(name)}"


def broker_connection(broker: str, name: str | None = None) -> str:
    return f"{server(broker)},component=broker-connections,name={_part(name)}"


def queue(broker: str, address: str | None = None, routing: str | None = None, name: str | None = None) -> str:
    return _queue(broker, _part(address), _part(routing), _part(name))


def _queue(broker: str, address: str, routing: str, name: str) -> str:
    within = f"{server(broker)},component=addresses,address={address},subcomponent=queues"
    return f"{within},routing-type={routing},queue={name}"


ANY_SERVER: Final = f"{DOMAIN}:broker=*"


def documents(broker: str) -> str:
    """Name every queue of dr-ctl's own: the attribute `User` of such a queue holds a document."""
    return _queue(broker, '"dr-ctl.*"', "*", '"dr-ctl.*"')


def outflows(broker: str) -> str:
    name = '"$ACTIVEMQ_ARTEMIS_MIRROR_*"'
    return _queue(broker, name, "*", name)


def queues_by_prefix(broker: str, prefix: str) -> str:
    """Name every queue with this prefix, or every queue if the prefix is empty."""
    return _queue(broker, "*", "*", f'{quote(prefix)[:-1]}*"') if prefix else queue(broker)
