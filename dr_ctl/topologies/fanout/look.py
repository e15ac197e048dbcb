"""One look at one broker whose producers write to its peer too."""

from __future__ import annotations

from dr_ctl.jolokia.client import Reader
from dr_ctl.topologies.classic.look import ask
from dr_ctl.topologies.classic.papers import Papers
from dr_ctl.topologies.fanout.view import BrokerView, FanoutConfig


def look(
    reader: Reader, papers: Papers, *, pair: str, site: str, config: FanoutConfig, broker: str, timeout_s: float
) -> BrokerView:
    """Raises `BrokerError`."""
    told = ask(reader, broker, timeout_s=timeout_s)
    own = {each.client for each, _ in told.connections if each.protocol == config.own}
    return BrokerView(
        pair=pair,
        site=site,
        config=config,
        broker=told.broker.text("BrokerName"),
        version=told.broker.text("BrokerVersion"),
        node=told.broker.text("BrokerName"),
        start=told.broker.text("BrokerId"),
        now_ms=papers.now_ms,
        acceptors=told.connectors,
        queues=told.queues,
        connections=tuple(each for each, network in told.connections if not network),
        # A browse of dr-ctl's own counts as a consumer and takes nothing.
        consumers=tuple(each for each, network in told.consumers if not network and each.client not in own),
        prepared=told.prepared,
        documents=papers.texts(),
        disk_used=told.share,
        slave=told.broker.flag("Slave"),
        networks=told.networks,
        denied=told.denied,
        bridges=tuple(each for each, network in told.connections if network),
    )
