"""The lines of a scenario that set states of brokers which no client and no command of dr-ctl can set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dr_ctl_lab.twin.artemis import locks
from dr_ctl_lab.twin.artemis.broker import ArtemisBroker
from dr_ctl_lab.twin.artemis.group import ForeignConnection, Group
from dr_ctl_lab.twin.artemis.limits import AddressSettings, Limits
from dr_ctl_lab.twin.bridges.broker import BridgesBroker
from dr_ctl_lab.twin.classic.broker import ClassicBroker
from dr_ctl_lab.twin.classic.brokersync.broker import BrokerSyncBroker
from dr_ctl_lab.twin.continuity.broker import ContinuityBroker
from dr_ctl_lab.twin.mirror.broker import MirrorBroker
from dr_ctl_lab.twin.parts import Acceptor
from tests import looks
from tests.topologies.workloads.work import Work
from tests.twin.matrix import edited

if TYPE_CHECKING:
    from dr_ctl_lab.twin.broker import Broker
    from tests.scenarios.stage import Stage

    Kind = TypeVar("Kind", bound=Broker)


def at(stage: Stage, place: str, kind: type[Kind]) -> Kind:
    broker = stage.host(place).broker
    assert isinstance(broker, kind)
    return broker


def limits(stage: Stage, place: str) -> Limits:
    return at(stage, place, ArtemisBroker).limits


def held(stage: Stage, queue: str, place: str, how: str) -> None:
    if how == "paused":
        at(stage, place, ArtemisBroker).pause_address(queue, on=True)
    elif how == "disabled":
        at(stage, place, ArtemisBroker).queue(queue).enabled = False
    else:
        limits(stage, place).blocked.add(queue)


def guest(stage: Stage, place: str, listener: str, protocol: str, user: str = "", client: str = "") -> None:
    at(stage, place, ArtemisBroker).foreign_connections.append(ForeignConnection(listener, protocol, user, client))


def notified(stage: Stage, place: str, listener: str) -> None:
    """Add the queue and the connections by which a cluster's other broker gets notifications."""
    broker = at(stage, place, ArtemisBroker)
    options = {"name": "notif.1", "address": "activemq.notifications", "routing-type": "multicast", "internal": True}
    broker.create_queue(options, here_only=True)
    broker.foreign_connections += [
        ForeignConnection(listener, "CORE", remote="10.9.8.7:40001"),
        ForeignConnection(listener, "CORE", "cluster-user", consumes="notif.1", remote="10.9.8.7:40002"),
    ]


def group(stage: Stage, place: str, policy: str, listener: str = "", backup: str = "", other: str = "") -> None:
    """Set the other nodes and brokers of a site, as the broker shows them."""
    broker = at(stage, place, ArtemisBroker)
    broker.group = Group(policy, shares_store="Shared Store" in policy, listener=listener, backup=backup)
    broker.group.cluster |= {"another": other} if other else {}


def look_for_two(broker: Broker) -> None:
    """Let the link, or each bridge, have two nodes of the peer."""
    if isinstance(broker, MirrorBroker):
        broker.link.alternates = (61618,)
    elif isinstance(broker, ContinuityBroker):
        broker.service.connectors = ["a", "b"]
    elif isinstance(broker, BridgesBroker):
        for bridge in broker.bridges.values():
            bridge.config = {**bridge.config, "static-connectors": ["a", "b"]}


def no_link(stage: Stage, place: str) -> None:
    """Remove the link, as from broker.xml."""
    broker = at(stage, place, MirrorBroker)
    link = broker.link
    link.configured = link.started = link.records_events = link.connected = link.attached = False
    broker.outflow.events.clear()


def cluster(stage: Stage, place: str, named: str = "") -> None:
    """Add an acceptor for the site's cluster, and the connections of another broker."""
    broker = at(stage, place, ArtemisBroker)
    broker.acceptors["cluster"] = Acceptor("cluster", "CORE", opens_at_boot=True, port=61618, started=True)
    broker.group.cluster["another"] = "10.9.8.7:61618"
    broker.group.listener = "" if named else "cluster"
    notified(stage, place, "cluster")


def forget(stage: Stage, count: str, queue: str, place: str) -> None:
    """Remove ids of processed messages from a store."""
    ids = at(stage, place, BridgesBroker).ids
    for name, ident in sorted(item for item in ids.every() if item[0] == queue)[: int(count)]:
        ids.forget(name, ident)


def announce(stage: Stage, place: str) -> None:
    """Copy the ids of a store to the peer's."""
    local, remote = (at(stage, case, BridgesBroker).ids for case in (place, stage.twin.other(place)))
    for queue, ident in local.every() - remote.every():
        remote.add(queue, ident, local=False)


def unannounced(stage: Stage, place: str, count: str, queue: str) -> None:
    """Store ids like a consumer that has neither sent them to the peer nor acknowledged."""
    broker = at(stage, place, BridgesBroker)
    for message in [*broker.queues[queue].available()][: int(count)]:
        broker.ids.add(queue, broker.identity(message), local=True)


def bridge_stops(stage: Stage, queue: str, place: str) -> None:
    at(stage, place, BridgesBroker).bridges[f"bridge.mirror.{stage.twin.other(place)}.{queue}"].stop()


def takes_sends(stage: Stage, place: str, queue: str) -> None:
    """Give the clients' rights back, but leave the queue paused, as a run does that ends between the two."""
    broker = at(stage, place, ArtemisBroker)
    broker.security.remove(broker.queues[queue].address)


def agents_stop(stage: Stage) -> None:
    for broker in stage.twin.brokers(BrokerSyncBroker):
        if broker.agent is not None:
            broker.agent.stop()


def leased(stage: Stage, place: str, how: str) -> None:
    """Let the lease of a holder that is gone last, or end."""
    at(stage, place, ArtemisBroker).coordinators[0].lock.leased = how == "lasts"


def loses(stage: Stage, place: str, count: str, queue: str) -> None:
    """Remove messages without a change of counters, as where a store is damaged."""
    messages = stage.host(place).broker.queues[queue].messages
    for key in [*messages][: None if count == "all" else int(count)]:
        messages.pop(key)


def emptied(stage: Stage, place: str) -> None:
    """Empty all queues, as where a broker comes back without its disk."""
    for queue in stage.host(place).broker.queues.values():
        queue.messages.clear()
        queue.by_origin.clear()


def full(stage: Stage, queue: str, place: str, how: str) -> None:
    """Let an address refuse staged messages, or accept them again."""
    broker = at(stage, place, ContinuityBroker)
    (broker.full.add if how == "is full" else broker.full.discard)(queue)
    broker.changed.notify_all()


def sought_at(stage: Stage, place: str, path: str) -> None:
    """Change the path of a console in the settings."""
    file = stage.twin.settings_path
    port = stage.host(place).broker.console_port
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(f":{port}/console/jolokia", f":{port}{path}"), encoding="utf-8")


def workloads(stage: Stage) -> None:
    """Add workloads to both sites; those of London run. Their commands are logged in `work/workloads.log`."""
    with edited(stage.twin) as settings_file:
        for site, part in settings_file["sites"].items():
            part["workloads"] = []
            for name in ("billing", "mailer"):
                stage.works[f"{name} at {site}"] = work = Work(
                    stage.home / "work", site, name, running=site == "london"
                )
                part["workloads"].append(work.told(singleton=name == "billing"))


def switched(stage: Stage, work: str, verb: str, how: str) -> None:
    name = {"fails": "fails", "hangs": "hangs"}.get(how, "broken")
    stage.works[work].switch(f"{verb}.{name}", on=how != "whole")


def locked(act: Callable[..., object]) -> Callable[..., None]:
    """Wrap an action with the twin's lock."""

    def acted(stage: Stage, **words: Any) -> None:
        with stage.twin.locked():
            act(stage, **words)

    return acted


_AT: Final = r"(?P<place>[\w/.-]+)"
_MET: Final = r"(, met by (?P<listener>\w+))?(, beside (?P<other>[^\s,]+))?(, backup (?P<backup>\S+))?"
ODDITIES: Final[Sequence[tuple[str, Callable[..., object]]]] = (
    (
        rf"the disk of {_AT} is (?P<share>\d+)% full",
        lambda stage, place, share: setattr(limits(stage, place), "disk_used", int(share) / 100),
    ),
    (
        rf"the memory of {_AT} ends at (?P<most>\d+) bytes",
        lambda stage, place, most: setattr(limits(stage, place), "memory", int(most)),
    ),
    (
        rf"address (?P<queue>\S+) at {_AT} ends at (?P<most>-?\d+) bytes, (?P<policy>[A-Z]+)",
        lambda stage, place, queue, most, policy: limits(stage, place).settings.update(
            {queue: AddressSettings(int(most), policy)}
        ),
    ),
    (rf"address (?P<queue>\S+) at {_AT} is (?P<how>paused|blocked|disabled)", held),
    (
        rf"{_AT} uses (?P<share>\d+)% of its (?P<of>\w+)",
        lambda stage, place, share, of: at(stage, place, ClassicBroker).usage.update({of: int(share)}),
    ),
    (rf"a login at {_AT} is given up", lambda stage, place: at(stage, place, ClassicBroker).stopped.append("ID:gone")),
    (rf"{_AT} has a guest by (?P<listener>\S+), (?P<protocol>\w+)( as (?P<user>\S+))?( named (?P<client>\S+))?", guest),
    (rf"{_AT} notifies another of its cluster by (?P<listener>\S+)", locked(notified)),
    (rf"{_AT} is a (?P<policy>[^,]+){_MET}", group),
    (rf"the link of {_AT} looks for two nodes", lambda stage, place: look_for_two(stage.host(place).broker)),
    (rf"the guests of {_AT} leave", lambda stage, place: at(stage, place, ArtemisBroker).foreign_connections.clear()),
    (rf"{_AT} has no link", locked(no_link)),
    (
        rf"the outflow of {_AT} is lost",
        locked(lambda stage, place: at(stage, place, MirrorBroker).outflow.events.clear()),
    ),
    (rf"{_AT} is one of a cluster(?P<named>, by another address)?", cluster),
    (rf"{_AT} forgets (?P<count>\d+) ids of (?P<queue>\S+)", locked(forget)),
    (rf"{_AT} announces its ids once more", locked(announce)),
    (rf"{_AT} writes down (?P<count>\d+) ids of (?P<queue>\S+) and announces none", locked(unannounced)),
    (rf"the processor of {_AT} stops", lambda stage, place: at(stage, place, BridgesBroker).processor.stop()),
    (rf"the bridge of (?P<queue>\S+) at {_AT} stops", locked(bridge_stops)),
    (rf"{_AT} takes what is sent to (?P<queue>\S+)", locked(takes_sends)),
    (
        rf"{_AT} has no divert of (?P<queue>\S+)",
        locked(lambda stage, place, queue: at(stage, place, BridgesBroker).diverts.pop(f"divert.{queue}")),
    ),
    (rf"{_AT} has no bridge", locked(lambda stage, place: at(stage, place, BridgesBroker).bridges.clear())),
    (r"the sites share a lock", locked(lambda stage: locks.join(*stage.twin.brokers(ArtemisBroker)))),
    (
        rf"the lock coordinator of {_AT} stops",
        lambda stage, place: at(stage, place, ArtemisBroker).coordinators[0].stop(),
    ),
    (r"the lease of (?P<place>\w+)'s lock (?P<how>lasts|ends)", leased),
    (rf"{_AT} lets clients in", lambda stage, place: stage.twin.open_clients(place)),
    (r"the agents stop", agents_stop),
    (rf"{_AT} damages (?P<count>\d+|all) of (?P<queue>\S+)", locked(loses)),
    (rf"{_AT}'s store is emptied", locked(emptied)),
    (
        rf"queue (?P<queue>\S+) at {_AT} has (?P<name>\S+) (?P<value>true|false)",
        lambda stage, queue, place, name, value: (
            stage.host(place).broker.queues[queue].options.update({name: value == "true"})
        ),
    ),
    (rf"address (?P<queue>\S+) at {_AT} (?P<how>is full|has room)", locked(full)),
    (rf"the console of {_AT} is sought at (?P<path>\S+)", sought_at),
    (r"workload billing, a singleton, and workload mailer at both sites", workloads),
    (
        r"(?P<work>\w+ at \w+) is (?P<now>running|stopped)",
        lambda stage, work, now: stage.works[work].set(running=now == "running"),
    ),
    (r"(?P<work>\w+ at \w+): (?P<verb>start|stop|state) (?P<how>fails|hangs|broken|whole)", switched),
    (
        r"looked at london (?P<ago>\d+) s ago",
        lambda stage, ago: looks.looked(stage.twin.settings_path.parent, float(ago)),
    ),
)
