"""The agent's looks at a Classic broker, and its requests to delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dr_ctl.jolokia.client import Change, Read, Reader
from dr_ctl.jolokia.errors import NoSuchBean
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.brokersync.sync.accounts import COUNTERS, counters
from dr_ctl.topologies.brokersync.sync.end import End
from dr_ctl.topologies.brokersync.sync.ports import Glance
from dr_ctl.topologies.classic import beans
from dr_ctl.topologies.classic.look import found

LOOK_S: Final = 3.0


def glance(end: End) -> Glance:
    """Look at a broker and at its queues that are copied. Raises `BrokerError`."""
    asked = [
        Read(beans.broker(end.broker), ("BrokerId",)),
        Read(beans.all_connectors(end.broker), ("Started",)),
        Read(beans.all_queues(end.broker), COUNTERS),
    ]
    itself, connectors, queues = end.reader().look(asked, timeout_s=LOOK_S)
    started = {beans.parts(bean)["connectorName"] for bean, each in found(connectors) if each.flag("Started")}
    # Use the true names of queues: names inside bean names are encoded.
    counted = {each.text("Name"): counters(each) for _, each in found(queues)}
    return Glance(
        Fields(end.site, itself.value()).text("BrokerId"),
        any(beans.part(name) in started for name in end.settings.clients),
        {name: each for name, each in counted.items() if end.copy(name) in counted},
    )


def is_open(end: End) -> bool:
    """Say whether any client's door of a broker is open. Raises `BrokerError`."""
    (connectors,) = end.reader().look([Read(beans.all_connectors(end.broker), ("Started",))], timeout_s=LOOK_S)
    started = {beans.parts(bean)["connectorName"] for bean, each in found(connectors) if each.flag("Started")}
    return any(beans.part(name) in started for name in end.settings.clients)


def depth(reader: Reader, broker: str, queue: str) -> int | None:
    """Read a queue's depth; returns None where there is no such queue yet."""
    (answer,) = reader.look([Read(beans.queue(broker, beans.part(queue)), ("QueueSize",))])
    return None if isinstance(answer.error, NoSuchBean) else Fields(queue, answer.value()).number("QueueSize")


def removal(broker: str, queue: str, ids: Sequence[str]) -> Change:
    """Deletes the messages with these ids; the answer is how many there were."""
    listed = ", ".join("'{}'".format(each.replace("'", "''")) for each in ids)
    bean = beans.queue(broker, beans.part(queue))
    return Change(bean, "removeMatchingMessages(java.lang.String)", (f"JMSMessageID IN ({listed})",))
