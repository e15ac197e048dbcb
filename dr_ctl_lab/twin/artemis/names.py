"""Names of an Artemis broker's management beans."""

from functools import lru_cache
from typing import Final

from dr_ctl_lab.twin.names import quoted

DOMAIN: Final = "org.apache.activemq.artemis"


@lru_cache(maxsize=65536)
def server(broker: str) -> str:
    return f"{DOMAIN}:broker={quoted(broker)}"


@lru_cache(maxsize=65536)
def part(broker: str, component: str, name: str) -> str:
    return f"{server(broker)},component={component},name={quoted(name)}"


@lru_cache(maxsize=65536)
def address(broker: str, name: str) -> str:
    return f"{server(broker)},component=addresses,address={quoted(name)}"


@lru_cache(maxsize=65536)
def queue(broker: str, address_name: str, routing: str, name: str) -> str:
    return f"{address(broker, address_name)},subcomponent=queues,routing-type={quoted(routing)},queue={quoted(name)}"
