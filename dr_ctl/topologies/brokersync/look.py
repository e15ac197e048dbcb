"""One look at one broker of a BrokerSync pair: which queues hold copies, and of which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dr_ctl.jolokia.client import Read, Reader
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.brokersync.view import AGENT, QUEUE, BrokerView, SyncConfig
from dr_ctl.topologies.classic import beans
from dr_ctl.topologies.classic import look as parts
from dr_ctl.topologies.classic.look import Answered
from dr_ctl.topologies.classic.papers import Papers
from dr_ctl.topologies.common.view import Queue


def seen(told: Answered, papers: Papers, *, pair: str, site: str, config: SyncConfig) -> BrokerView:
    """What a broker answered, as that of a pair. Raises `BrokerError`."""
    bridged = {consumer.queue for consumer, network in told.consumers if network}
    named = {queue.name: queue for queue in told.queues}
    copying = _copying(named, bridged, config)
    agents = {each.client for each, _ in told.connections if each.protocol == config.agent}

    def of_agent(client: str) -> bool:
        # Its browses end quickly: by now their connections may be gone.
        return client in agents or client.startswith(AGENT)

    # What carries messages is no client's; nor is what arrives: it is passed on at once to the queue that it is of.
    own = {queue.name for queue in copying.values()} | {
        config.arrives.replace(QUEUE, name) for name in named if QUEUE in config.arrives
    }
    return BrokerView(
        pair=pair,
        site=site,
        config=config,
        broker=told.broker.text("BrokerName"),
        managed=told.managed,
        version=told.broker.text("BrokerVersion"),
        node=told.broker.text("BrokerName"),
        start=told.broker.text("BrokerId"),
        now_ms=papers.now_ms,
        acceptors=told.connectors,
        queues=tuple(replace(each, internal=each.name in own) for each in told.queues),
        connections=tuple(each for each, network in told.connections if not network),
        consumers=tuple(each for each, network in told.consumers if not network and not of_agent(each.client)),
        prepared=told.prepared,
        documents=papers.texts(),
        disk_used=told.share,
        slave=told.broker.flag("Slave"),
        networks=told.networks,
        denied=told.denied,
        bridges=tuple(each for each, network in told.connections if network),
        copying=copying,
    )


def glance(reader: Reader, view: BrokerView, *, timeout_s: float) -> BrokerView:
    """The same broker with its doors, its link, the copies and what they are of as they are now; of other queues what
    the last look said."""
    own = [*view.copying.values(), *(view.named[name] for name in view.copying if name in view.named)]
    told = reader.look(
        [
            Read(beans.broker(view.broker), ("BrokerId", "Slave")),
            Read(beans.all_connectors(view.broker), ("Started",)),
            Read(beans.all_networks(view.broker), ("Name",)),
            Read(beans.all_bridges(view.broker), ("RemoteBrokerName",)),
            *(Read(queue.bean, parts.QUEUE) for queue in own),
        ],
        timeout_s=timeout_s,
    )
    fields = Fields(view.broker, told[0].value())
    started = {bean: each.flag("Started") for bean, each in parts.found(told[1])}
    queues = {
        old.name: replace(parts.queue(old.bean, Fields(old.bean, answer.value())), internal=old.internal)
        for old, answer in zip(own, told[4:], strict=True)
    }
    return replace(
        view,
        start=fields.text("BrokerId"),
        slave=fields.flag("Slave"),
        acceptors=tuple(replace(each, started=started.get(each.bean, False)) for each in view.acceptors),
        networks=tuple(parts.networks(told[2], told[3])),
        queues=tuple(queues.get(each.name, each) for each in view.queues),
        copying={name: queues[each.name] for name, each in view.copying.items()},
    )


def _copying(named: Mapping[str, Queue], bridged: set[str], config: SyncConfig) -> dict[str, Queue]:
    """By name of what is copied: as the settings name it, and whatever a bridge takes from that begins with the name of
    another queue."""
    before, after = config.copies.split(QUEUE)
    found = {}
    for name, queue in named.items():
        if name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after):
            found[name[len(before) : len(name) - len(after)]] = queue
        elif name in bridged and (origin := _origin(name, named)) is not None:
            found[origin] = queue
    return found


def _origin(name: str, named: Mapping[str, Queue]) -> str | None:
    return max((each for each in named if each != name and name.startswith(each)), key=len, default=None)
