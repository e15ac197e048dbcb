"""A look at a broker with the replication plugin: usual figures, its part, and events that its replica lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dr_ctl.jolokia.client import Answer, Read, Reader
from dr_ctl.jolokia.errors import NoSuchBean
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.classic import beans as classic_beans
from dr_ctl.topologies.classic import look as classic
from dr_ctl.topologies.classic.document_files import Papers
from dr_ctl.topologies.classic.operations import SETS_ROLE
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.replica import beans
from dr_ctl.topologies.replica.view import BrokerView, Plugin, ReplicaConfig

PLUGIN: Final = ("ReplicationRole", "TotalReplicationLag", "ReplicationLag", "SourceWaitTime", "ReplicaWaitTime")


def look(
    reader: Reader,
    document_files: Papers,
    *,
    pair: str,
    site: str,
    config: Config,
    own: ReplicaConfig,
    broker: str,
    timeout_s: float,
) -> BrokerView:
    """Raises `BrokerError`."""
    plugin = Read(beans.plugin(broker), PLUGIN)
    events = Read(beans.all_queues(broker), classic.QUEUE)
    answer = classic.ask(reader, broker, timeout_s=timeout_s, more=(plugin, events), permits=(SETS_ROLE,))
    itself, queues = answer.more
    return BrokerView(
        pair=pair,
        site=site,
        config=config,
        own=own,
        broker=answer.broker.text("BrokerName"),
        version=answer.broker.text("BrokerVersion"),
        node=answer.broker.text("BrokerName"),
        start=answer.broker.text("BrokerId"),
        now_ms=document_files.now_ms,
        acceptors=answer.connectors,
        # Queues of the plugin that it does not hide are no clients' queues either.
        queues=tuple(each for each in answer.queues if not each.name.startswith(beans.PREFIX)),
        connections=tuple(each for each, network in answer.connections if not network),
        consumers=tuple(each for each, network in answer.consumers if not network),
        prepared=answer.prepared,
        documents=document_files.texts(),
        disk_used=answer.share,
        slave=answer.broker.flag("Slave"),
        networks=answer.networks,
        denied=answer.denied,
        bridges=tuple(each for each, network in answer.connections if network),
        plugin=_plugin(beans.plugin(broker), itself),
        events=tuple(
            queue
            for queue in (classic.queue(bean, each) for bean, each in classic.found(queues))
            if queue.name in (beans.EVENTS, beans.INTERMEDIATE)
        ),
    )


def glance(reader: Reader, view: BrokerView, *, timeout_s: float) -> BrokerView:
    """Read a broker's doors, its part, its lag and its events again."""
    itself, doors, plugin, *events = reader.look(
        [
            Read(classic_beans.broker(view.broker), ("BrokerId", "Slave")),
            Read(classic_beans.all_connectors(view.broker), ("Started",)),
            Read(beans.plugin(view.broker), PLUGIN),
            *(Read(queue.bean, classic.QUEUE) for queue in view.events),
        ],
        timeout_s=timeout_s,
    )
    fields = Fields(view.broker, itself.value())
    started = {bean: each.flag("Started") for bean, each in classic.found(doors)}
    answers = zip(view.events, events, strict=True)
    return replace(
        view,
        start=fields.text("BrokerId"),
        slave=fields.flag("Slave"),
        acceptors=tuple(replace(each, started=started.get(each.bean, False)) for each in view.acceptors),
        plugin=_plugin(beans.plugin(view.broker), plugin),
        events=tuple(classic.queue(queue.bean, Fields(queue.bean, answer.value())) for queue, answer in answers),
    )


def _plugin(bean: str, answer: Answer) -> Plugin | None:
    """Read the plugin; returns None where the broker has no such plugin."""
    if isinstance(answer.error, NoSuchBean):
        return None
    fields = Fields(bean, answer.value())
    part = fields.optional_text("ReplicationRole")
    if part is None:
        return None
    source = part != beans.REPLICA
    return Plugin(
        part,
        fields.optional_number("TotalReplicationLag" if source else "ReplicationLag"),
        fields.optional_number("SourceWaitTime" if source else "ReplicaWaitTime"),
    )
