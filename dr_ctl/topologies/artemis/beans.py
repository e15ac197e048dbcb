"""The names of an Artemis broker's management beans."""

from typing import Final

from dr_ctl.jolokia.values import RUNTIME, parts, quote, unquote

__all__ = ("RUNTIME", "parts", "quote", "unquote")

DOMAIN: Final = "org.apache.activemq.artemis"
SECURITY: Final = "hawtio:type=security,area=jmx,name=ArtemisJMXSecurity"


def server(broker: str) -> str:
    return f"{DOMAIN}:broker={quote(broker)}"


def acceptor(broker: str, name: str) -> str:
    return f"{server(broker)},component=acceptors,name={quote(name)}"


def address(broker: str, name: str) -> str:
    return f"{server(broker)},component=addresses,address={quote(name)}"


def broker_connection(broker: str, name: str) -> str:
    return f"{server(broker)},component=broker-connections,name={quote(name)}"


def queue(broker: str, address: str, routing: str, name: str) -> str:
    return (
        f"{server(broker)},component=addresses,address={quote(address)},subcomponent=queues,"
        f"routing-type={quote(routing)},queue={quote(name)}"
    )


ANY_SERVER: Final = f"{DOMAIN}:broker=*"


def all_acceptors(broker: str) -> str:
    return f"{server(broker)},component=acceptors,name=*"


def all_broker_connections(broker: str) -> str:
    return f"{server(broker)},component=broker-connections,name=*"


def documents(broker: str) -> str:
    """Every queue of dr-ctl's own: the documents at a broker stand in the queues' `User`."""
    return (
        f'{server(broker)},component=addresses,address="dr-ctl.*",subcomponent=queues,routing-type=*,queue="dr-ctl.*"'
    )


def all_bridges(broker: str) -> str:
    return f"{server(broker)},component=bridges,name=*"


def all_diverts(broker: str) -> str:
    return f"{server(broker)},component=addresses,address=*,subcomponent=diverts,divert=*"


def all_addresses(broker: str) -> str:
    return f"{server(broker)},component=addresses,address=*"


def outflows(broker: str) -> str:
    """Every store-and-forward queue of a mirror."""
    name = '"$ACTIVEMQ_ARTEMIS_MIRROR_*"'
    return f"{server(broker)},component=addresses,address={name},subcomponent=queues,routing-type=*,queue={name}"


def all_queues(broker: str) -> str:
    return _queues(broker, "*")


def queues_beginning(broker: str, beginning: str) -> str:
    """Every queue whose name begins so; every one there is where that is nothing."""
    return _queues(broker, f'{quote(beginning)[:-1]}*"') if beginning else all_queues(broker)


def _queues(broker: str, name: str) -> str:
    return f"{server(broker)},component=addresses,address=*,subcomponent=queues,routing-type=*,queue={name}"
