"""Brokers with the plugin as a reading tells them, made by hand."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dr_ctl.topologies.common.snapshot import Silent
from dr_ctl.topologies.common.view import Acceptor, Config, Queue
from dr_ctl.topologies.continuity.view import Bridge, Commands, ContinuitySnapshot, Flow, Service, SiteView
from tests.topologies import made
from tests.topologies.made import PAIR

STARTED_MS = 1_795_000_000_000


def queue(name: str, depth: int = 0, **more: Any) -> Queue:
    return made.queue(name, f'org.apache.activemq.artemis:broker="x",queue="{name}"', depth, **more)


def bridge(name: str, *, started: bool = True) -> Bridge:
    return Bridge(name, f'org.apache.activemq.artemis:broker="x",bridge="{name}"', started, 0)


def flow(name: str, *, to_ship: int = 0, acks: int = 0, staged: int = 0, unapplied: int = 0, **more: Any) -> Flow:
    result = Flow(
        queue=name,
        address=name,
        out_mirror=queue(f"{name}.out.mirror", to_ship, consumers=1, internal=True),
        out_acks=queue(f"{name}.out.acks", acks, consumers=1, internal=True),
        staging=queue(f"{name}.in.mirror", staged, internal=True),
        in_acks=queue(f"{name}.in.acks", unapplied, consumers=1, internal=True),
        mirror_bridge=bridge(f"{name}.out.mirror.bridge"),
        acks_bridge=bridge(f"{name}.out.acks.bridge"),
        target_bridge=bridge(f"{name}.in.mirror.bridge", started=False),
    )
    return replace(result, **more)


def service(site: str, *, active: bool, **more: Any) -> Service:
    result = Service(
        bean=f'org.apache.activemq.artemis:broker="{site}",component=continuity,name="continuity.service"',
        site_id=site,
        activated=active,
        delivering=active,
        started=True,
        staging_ms=2000,
        interval_ms=1000.0,
        suffixes=(".out.mirror", ".out.acks", ".in.mirror", ".in.acks"),
        prefix="continuity.cmd",
    )
    return replace(result, **more)


def broker(site: str, *flows: Flow, depths: Mapping[str, int] | None = None, **more: Any) -> SiteView:
    """A broker; `depths` are those of its business queues. London serves, unless told otherwise."""
    active = more.pop("active", site == "london")
    made_flows = flows or (flow("orders"),)
    options = {
        "config": Config(("clients",), ("mirror",), None, id_cache=20_000),
        "version": "2.11.0",
        "start": str(STARTED_MS),
        "now_ms": STARTED_MS + 60_000,
        "acceptors": (listener("clients", started=active), listener("mirror", started=True)),
        "queues": tuple(queue(made_flow.queue, (depths or {}).get(made_flow.queue, 0)) for made_flow in made_flows),
        "service": service(site, active=active),
        "flows": made_flows,
        "commands": Commands(
            queue("continuity.cmd.out", consumers=1), queue("continuity.cmd.in"), bridge("continuity.cmd.out.bridge")
        ),
    }
    return made.view(SiteView, site, **{**options, **more})


def listener(name: str, *, started: bool) -> Acceptor:
    bean = f'org.apache.activemq.artemis:broker="x",component=acceptors,name="{name}"'
    return made.listener(name, bean, 61616, "AMQP CORE STOMP", started=started, opens_at_boot=True)


def snapshot(london: SiteView | Silent, paris: SiteView | Silent) -> ContinuitySnapshot:
    return ContinuitySnapshot({"london": {PAIR: london}, "paris": {PAIR: paris}})
