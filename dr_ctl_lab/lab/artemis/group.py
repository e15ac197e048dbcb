"""The broker.xml of one of several nodes: cluster connections, and a shared or replicated store."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dr_ctl_lab.lab.spec import Group

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dr_ctl_lab.lab.spec import BrokerSpec

# The policies of the first node, and of the others.
SHARED: Final = (
    "<shared-store><primary><failover-on-shutdown>true</failover-on-shutdown></primary></shared-store>",
    "<shared-store><backup><failover-on-shutdown>true</failover-on-shutdown></backup></shared-store>",
)
REPLICATED: Final = (
    "<replication><primary><check-for-active-server>true</check-for-active-server></primary></replication>",
    "<replication><backup><allow-failback>true</allow-failback></backup></replication>",
)
RENAMED_SINCE: Final = (2, 32)  # before, `primary` was `master`, and `backup` was `slave`
OF_NODES: Final = re.compile(r"own$|other-\d+$")  # the names of connectors between them
STARTED, WAITING = "AMQ221000", "AMQ221034"  # in the log: the first node starts; it waits for its store


def grouped(xml: str, spec: BrokerSpec) -> str:
    """Add the nodes' listener and policy. The clients' listener opens at every start, so that a takeover serves."""
    if not spec.nodes:
        return xml
    store = str(spec.store)
    own, *others = sorted(spec.nodes, key=lambda node: node.node != spec.site.node)
    policy = (REPLICATED if spec.replicates else SHARED)[spec.site is not spec.nodes[0]]
    if spec.version < RENAMED_SINCE:
        policy = policy.replace("primary>", "master>").replace("backup>", "slave>")
    if not spec.replicates:
        xml = re.sub(r"(-directory>)data/", lambda start: f"{start[1]}{store}/", xml)
    xml = xml.replace(";autoStart=false", "")
    ports = [node.ports["cluster"] for node in (own, *others)]
    return with_listener(clustered(xml, ports[0], ports[1:], policy), ports[0])


def clustered(xml: str, own: int, others: Sequence[int], policy: str = "") -> str:
    """Add a cluster connection, with connectors to the broker's own port and to the others."""
    names = [f"other-{number}" for number in range(len(others))]
    made = [
        f'<connector name="{name}">tcp://127.0.0.1:{port}</connector>' for name, port in zip(names, others, strict=True)
    ]
    connectors = f'<connectors><connector name="own">tcp://127.0.0.1:{own}</connector>{"".join(made)}'
    if "<connectors>" in xml:
        xml = xml.replace("<connectors>", connectors, 1)
    else:
        xml = xml.replace("<acceptors>", f"{connectors}</connectors><acceptors>", 1)
    added = f"""<cluster-user>cluster-user</cluster-user><cluster-password>cluster-password</cluster-password>
      <cluster-connections><cluster-connection name="site"><connector-ref>own</connector-ref>
        <retry-interval>300</retry-interval><message-load-balancing>ON_DEMAND</message-load-balancing>
        <max-hops>1</max-hops>
        <static-connectors>{"".join(f"<connector-ref>{name}</connector-ref>" for name in names)}</static-connectors>
      </cluster-connection></cluster-connections>{f"<ha-policy>{policy}</ha-policy>" if policy else ""}
      <acceptors>"""
    return xml.replace("<acceptors>", added, 1)


def with_listener(xml: str, port: int) -> str:
    """Add the acceptor of the cluster."""
    listener = f'<acceptor name="cluster">tcp://127.0.0.1:{port}?protocols=CORE</acceptor></acceptors>'
    return xml.replace("</acceptors>", listener, 1)


def is_waiting(instance: Path) -> bool:
    """Say whether the first node has found the store locked since its start."""
    log = instance / "log" / "artemis.log"
    return log.exists() and WAITING in log.read_text(errors="replace").rpartition(STARTED)[2]


GROUP: Final = Group(ports=("cluster",), is_waiting=is_waiting, replicates=True, settings={"cluster": ["cluster"]})
# A takeover opens listeners: only rights keep clients out over it.
FENCED: Final = replace(GROUP, settings={"cluster": ["cluster"], "lasting_fence": {"roles": ["apps"]}})
