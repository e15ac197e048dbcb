"""What the agent reads of a Classic broker, and how it deletes there: names of beans, requests, values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dr_ctl.core.errors import BrokerError
from dr_ctl.jolokia.beans import parts
from dr_ctl.jolokia.client import Change, Read, Reader, Search
from dr_ctl.jolokia.errors import NoSuchBean
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.brokersync.sync.accounts import Counters

BROKER: Final = "org.apache.activemq:type=Broker"
# In this order: what is read later can only make the sum of an account smaller than it is.
COUNTERS: Final = ("Name", "DequeueCount", "InFlightCount", "DispatchCount", "ExpiredCount", "QueueSize")
_IN_NAMES: Final = str.maketrans(dict.fromkeys(":,'\"", "_") | {"?": "&qe;", "=": "&amp;", "*": "&ast;"})


def server(broker: str) -> str:
    return f"{BROKER},brokerName={broker.translate(_IN_NAMES)}"


def queue(broker: str, name: str) -> str:
    return f"{server(broker)},destinationType=Queue,destinationName={name.translate(_IN_NAMES)}"


def find_broker(reader: Reader) -> str:
    """The name of the one broker behind a console."""
    (told,) = reader.look([Search(f"{BROKER},brokerName=*")])
    names = {parts(each)["brokerName"] for each in told.value()}
    if len(names) != 1:
        raise BrokerError(f"{reader.url}: expected one broker, found {len(names)}")
    return names.pop()


def glance(broker: str) -> list[Read]:
    """What is asked in one look."""
    return [
        Read(server(broker), ("BrokerId",)),
        Read(f"{server(broker)},connector=clientConnectors,connectorName=*", ("Started",)),
        Read(f"{server(broker)},destinationType=Queue,destinationName=*", COUNTERS),
    ]


def doors(told: Mapping[str, Any]) -> dict[str, bool]:
    """Whether each connector is open, by its name."""
    return {parts(bean)["connectorName"]: Fields(bean, each).flag("Started") for bean, each in told.items()}


def counters(told: Mapping[str, Any]) -> dict[str, Counters]:
    """The queues by their true names: those in the beans' names are encoded."""
    found = {}
    for bean, each in told.items():
        fields = Fields(bean, each)
        found[fields.text("Name")] = Counters(
            fields.number("DequeueCount"),
            fields.number("InFlightCount"),
            fields.number("DispatchCount"),
            fields.number("ExpiredCount"),
            fields.number("QueueSize"),
        )
    return found


def depth(reader: Reader, broker: str, name: str) -> int | None:
    """None where there is no such queue yet."""
    (told,) = reader.look([Read(queue(broker, name), ("QueueSize",))])
    if isinstance(told.error, NoSuchBean):
        return None
    return Fields(name, told.value()).number("QueueSize")


def removal(broker: str, name: str, ids: Sequence[str]) -> Change:
    listed = ", ".join("'{}'".format(each.replace("'", "''")) for each in ids)
    return Change(queue(broker, name), "removeMatchingMessages(java.lang.String)", (f"JMSMessageID IN ({listed})",))
