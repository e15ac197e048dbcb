"""A look at a broker of a BrokerSync pair: the queues that hold copies, and the queue of each copy."""

from collections.abc import Mapping
from dataclasses import replace

from dr_ctl.jolokia.client import Read, Reader
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.brokersync.view import AGENT, QUEUE, BrokerView, SyncConfig
from dr_ctl.topologies.classic import beans
from dr_ctl.topologies.classic import look as parts
from dr_ctl.topologies.classic.access import BrokerStore
from dr_ctl.topologies.classic.look import Answered
from dr_ctl.topologies.common.names import OWN
from dr_ctl.topologies.common.view import Config, Queue


def as_view(
    answer: Answered, document_files: BrokerStore, *, pair: str, site: str, config: Config, own: SyncConfig
) -> BrokerView:
    """Make the view of a pair's broker from the answer. Raises `BrokerError`."""
    bridged = {consumer.queue for consumer, network in answer.consumers if network}
    named = {queue.name: queue for queue in answer.queues}
    copying = {name: replace(each, internal=True) for name, each in _copying(named, bridged, own).items()}
    # No client owns queues that carry messages. An arriving message is passed on at once to its own queue.
    internal = {queue.name for queue in copying.values()} | {
        own.arrives.replace(QUEUE, name) for name in named if QUEUE in own.arrives
    }
    return BrokerView(
        pair=pair,
        site=site,
        config=config,
        own=own,
        broker=answer.broker.text("BrokerName"),
        managed=answer.managed,
        version=answer.broker.text("BrokerVersion"),
        node=answer.broker.text("BrokerName"),
        start=answer.broker.text("BrokerId"),
        now_ms=document_files.now_ms,
        acceptors=answer.connectors,
        queues=tuple(replace(each, internal=each.name in internal) for each in answer.queues),
        connections=tuple(each for each, network in answer.connections if not network),
        consumers=tuple(
            each for each, network in answer.consumers if not network and not each.client.startswith(AGENT)
        ),
        prepared=answer.prepared,
        documents=document_files.texts(),
        disk_used=answer.share,
        obstacles=answer.obstacles,
        networks=answer.networks,
        denied=answer.denied,
        bridges=tuple(each for each, network in answer.connections if network),
        copying=copying,
    )


def glance(reader: Reader, view: BrokerView, *, timeout_s: float) -> BrokerView:
    """Read a broker's listeners, link, copy queues and clients' queues again; other queues stay as in the last look."""
    own = [*view.copying.values(), *view.business.values()]
    answers = reader.look(
        [
            Read(beans.broker(view.broker), ("BrokerId", "Slave")),
            Read(beans.all_connectors(view.broker), ("Started",)),
            Read(beans.all_networks(view.broker), ("Name",)),
            Read(beans.all_bridges(view.broker), ("RemoteBrokerName",)),
            *(Read(queue.bean, parts.QUEUE) for queue in own),
        ],
        timeout_s=timeout_s,
    )
    fields = Fields(view.broker, answers[0].value())
    parts.must_be_active(reader.url, fields)
    started = {bean: each.flag("Started") for bean, each in parts.found(answers[1])}
    queues = {
        old.name: replace(parts.queue(old.bean, Fields(old.bean, answer.value())), internal=old.internal)
        for old, answer in zip(own, answers[4:], strict=True)
    }
    return replace(
        view,
        start=fields.text("BrokerId"),
        acceptors=tuple(replace(each, started=started.get(each.bean, False)) for each in view.acceptors),
        networks=tuple(parts.networks(answers[2], answers[3])),
        queues=tuple(queues.get(each.name, each) for each in view.queues),
        copying={name: queues[each.name] for name, each in view.copying.items()},
    )


def _copying(named: Mapping[str, Queue], bridged: set[str], own: SyncConfig) -> dict[str, Queue]:
    """Find the copy queues by the queue they copy: named as in the settings, or taken from by a bridge and named with
    another queue's name at the beginning."""
    before, after = own.copies.split(QUEUE)
    found = {}
    for name, queue in named.items():
        if name.startswith(OWN):  # copies that were kept aside are not shipped
            continue
        if name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after):
            found[name[len(before) : len(name) - len(after)]] = queue
        elif name in bridged and (origin := _origin(name, named)) is not None:
            found[origin] = queue
    return found


def _origin(name: str, named: Mapping[str, Queue]) -> str | None:
    return max((each for each in named if each != name and name.startswith(each)), key=len, default=None)
