"""The agent's looks at a Classic broker, and its requests to delete."""

from typing import Final

from dr_ctl.jolokia.client import Answer, Change, Read, Reader
from dr_ctl.jolokia.errors import NoSuchBean
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.brokersync.sync.accounts import COUNTERS, counters
from dr_ctl.topologies.brokersync.sync.end import End
from dr_ctl.topologies.brokersync.sync.ports import Count, Glance, There
from dr_ctl.topologies.classic import beans
from dr_ctl.topologies.classic.look import found
from dr_ctl.topologies.classic.operations import REMOVE_MATCHING, by_ids
from dr_ctl.topologies.common.consumed import Consumed

LOOK_S: Final = 3.0
COUNT: Final = ("QueueSize", "EnqueueCount", "DequeueCount")


def glance(end: End) -> Glance:
    """Look at a broker and at its queues that are copied. Raises `BrokerError`."""
    asked = [
        Read(beans.broker(end.broker), ("BrokerId",)),
        _connectors(end),
        Read(beans.all_queues(end.broker), (*COUNTERS, *COUNT[:2])),
    ]
    itself, connectors, queues = end.reader().look(asked, timeout_s=LOOK_S)
    # Use the true names of queues: names inside bean names are encoded.
    rows = {each.text("Name"): each for _, each in found(queues)}
    copied = {name: each for name, each in rows.items() if end.copy(name) in rows}
    return Glance(
        Fields(end.site, itself.value()).text("BrokerId"),
        _lets_in(end, connectors),
        {name: counters(each) for name, each in copied.items()},
        {name: _count(each) for name, each in copied.items()},
        {name: _count(rows[end.copy(name)]) for name in copied},
    )


def is_open(end: End) -> bool:
    """Say whether any client's door of a broker is open. Raises `BrokerError`."""
    (connectors,) = end.reader().look([_connectors(end)], timeout_s=LOOK_S)
    return _lets_in(end, connectors)


def counts(end: End) -> There:
    """Count what lies in all queues of the waiting broker. Raises `BrokerError`."""
    (queues,) = end.reader().look([Read(beans.all_queues(end.broker), ("Name", *COUNT))], timeout_s=LOOK_S)
    rows = {each.text("Name"): _count(each) for _, each in found(queues)}
    return There(rows, {name: rows[end.copy(name)] for name in rows if end.copy(name) in rows})


def count(reader: Reader, broker: str, queue: str) -> Count | None:
    """Count what lies in a queue; returns None where there is no such queue yet."""
    (answer,) = reader.look([Read(beans.queue(broker, beans.part(queue)), COUNT)])
    return None if isinstance(answer.error, NoSuchBean) else _count(Fields(queue, answer.value()))


def removal(broker: str, queue: str, gone: Consumed) -> Change:
    """Deletes the messages with these ids; the answer is how many there were."""
    return Change(beans.queue(broker, beans.part(queue)), REMOVE_MATCHING, (by_ids(sorted(gone.ids)),))


def _connectors(end: End) -> Read:
    return Read(beans.all_connectors(end.broker), ("Started",))


def _lets_in(end: End, connectors: Answer) -> bool:
    started = {beans.parts(bean)["connectorName"] for bean, each in found(connectors) if each.flag("Started")}
    return any(beans.part(name) in started for name in end.settings.clients)


def _count(fields: Fields) -> Count:
    depth, came, left = (fields.number(each) for each in COUNT)
    return Count(depth, came, left)
