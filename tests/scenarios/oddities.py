"""The lines of a scenario that put brokers into a state which no client and no command of dr-ctl puts them into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import yaml

from dr_ctl_lab.twin.artemis.broker import ArtemisBroker
from dr_ctl_lab.twin.artemis.group import Guest
from dr_ctl_lab.twin.artemis.limits import AddressSettings, Limits
from dr_ctl_lab.twin.bridges.broker import BridgesBroker
from dr_ctl_lab.twin.classic.broker import ClassicBroker
from dr_ctl_lab.twin.classic.brokersync.broker import BrokerSyncBroker
from dr_ctl_lab.twin.messages import Message
from dr_ctl_lab.twin.mirror.broker import MirrorBroker
from dr_ctl_lab.twin.parts import Acceptor
from tests import looks
from tests.topologies.workloads.work import Work

if TYPE_CHECKING:
    from dr_ctl_lab.twin.broker import Broker
    from tests.scenarios.stage import Stage


def artemis(stage: Stage, place: str) -> ArtemisBroker:
    broker = stage.host(place).broker
    assert isinstance(broker, ArtemisBroker)
    return broker


def limits(stage: Stage, place: str) -> Limits:
    return artemis(stage, place).limits


def disk(stage: Stage, place: str, share: str) -> None:
    limits(stage, place).disk_used = int(share) / 100


def memory(stage: Stage, place: str, most: str) -> None:
    limits(stage, place).memory = int(most)


def address(stage: Stage, queue: str, place: str, most: str, policy: str) -> None:
    limits(stage, place).settings[queue] = AddressSettings(int(most), policy)


def held(stage: Stage, queue: str, place: str, how: str) -> None:
    if how == "paused":
        artemis(stage, place).pause_address(queue, on=True)
    else:
        limits(stage, place).blocked.add(queue)


def usage(stage: Stage, place: str, share: str, of: str) -> None:
    broker = stage.host(place).broker
    assert isinstance(broker, ClassicBroker)
    broker.usage[of] = int(share)


def guest(stage: Stage, place: str, door: str, protocol: str, user: str = "", client: str = "") -> None:
    artemis(stage, place).guests.append(Guest(door, protocol, user, client))


def guests_leave(stage: Stage, place: str) -> None:
    artemis(stage, place).guests.clear()


def no_link(stage: Stage, place: str) -> None:
    """As where its broker.xml has no broker connection."""
    broker = stage.host(place).broker
    assert isinstance(broker, MirrorBroker)
    with stage.twin.still():
        link = broker.link
        link.configured = link.started = link.captures = link.connected = link.attached = False
        broker.outflow.events.clear()


def cluster(stage: Stage, place: str, named: str = "") -> None:
    """An acceptor for brokers of its site, and the connections of one that is there."""
    broker = artemis(stage, place)
    broker.acceptors["cluster"] = Acceptor("cluster", "CORE", opens_at_boot=True, port=61618, started=True)
    broker.group.cluster["another"] = "10.9.8.7:61618"
    broker.group.door = "" if named else "cluster"
    options = {"name": "notif.1", "address": "activemq.notifications", "routing-type": "multicast", "internal": True}
    broker.create_queue(options, here_only=True)
    broker.guests += [
        Guest("cluster", "CORE", remote="10.9.8.7:40001"),
        Guest("cluster", "CORE", "cluster-user", consumes="notif.1", remote="10.9.8.7:40002"),
    ]


def forget(stage: Stage, count: str, queue: str, place: str) -> None:
    """Some ids of processed messages are gone from a store."""
    broker = stage.host(place).broker
    assert isinstance(broker, BridgesBroker)
    with stage.twin.still():
        for name, ident in sorted(each for each in broker.ids.every() if each[0] == queue)[: int(count)]:
            broker.ids.forget(name, ident)


def announce(stage: Stage, place: str) -> None:
    """Its peer's store takes again what this one has."""
    here, there = stage.host(place).broker, stage.host(stage.twin.other(place)).broker
    assert isinstance(here, BridgesBroker)
    assert isinstance(there, BridgesBroker)
    with stage.twin.still():
        for queue, ident in here.ids.every() - there.ids.every():
            there.ids.add(queue, ident, here=False)


def unannounced(stage: Stage, place: str, count: str, queue: str) -> None:
    """As by a consumer that has not announced or acknowledged yet what it has done."""
    broker = stage.host(place).broker
    assert isinstance(broker, BridgesBroker)
    with stage.twin.still():
        for message in [*broker.queues[queue].live()][: int(count)]:
            broker.ids.add(queue, broker.identity(message), here=True)


def processor_stops(stage: Stage, place: str) -> None:
    broker = stage.host(place).broker
    assert isinstance(broker, BridgesBroker)
    broker.processor.stop()


def bridge_stops(stage: Stage, queue: str, place: str) -> None:
    broker = stage.host(place).broker
    assert isinstance(broker, BridgesBroker)
    with stage.twin.still():
        broker.bridges[f"bridge.mirror.{stage.twin.other(place)}.{queue}"].stop()


def takes_sends(stage: Stage, place: str, queue: str) -> None:
    """As a run leaves it that ended between the roles and the queue."""
    broker = artemis(stage, place)
    with stage.twin.still():
        broker.security.remove(broker.queues[queue].address)


def no_divert(stage: Stage, place: str, queue: str) -> None:
    broker = stage.host(place).broker
    assert isinstance(broker, BridgesBroker)
    with stage.twin.still():
        del broker.diverts[f"divert.{queue}"]


def no_bridge(stage: Stage, place: str) -> None:
    broker = stage.host(place).broker
    assert isinstance(broker, BridgesBroker)
    with stage.twin.still():
        broker.bridges.clear()


def agents_stop(stage: Stage) -> None:
    for broker in stage.twin.brokers(BrokerSyncBroker):
        if broker.agent is not None:
            broker.agent.stop()


def loses(stage: Stage, place: str, count: str, queue: str) -> None:
    """As where a store is damaged: no counter tells it."""
    with stage.twin.still():
        messages = stage.host(place).broker.queues[queue].messages
        for key in [*messages][: None if count == "all" else int(count)]:
            messages.pop(key)


def emptied(stage: Stage, place: str) -> None:
    """As where a broker comes back without its disk."""
    with stage.twin.still():
        for queue in stage.host(place).broker.queues.values():
            queue.messages.clear()
            queue.by_origin.clear()


def option(stage: Stage, queue: str, place: str, name: str, value: str) -> None:
    with stage.twin.still():
        stage.host(place).broker.queues[queue].options[name] = value == "true"


def looked(stage: Stage, ago: str) -> None:
    """As by a monitor that has ended since."""
    looks.looked(stage.twin.settings_path.parent, float(ago))


def sought_at(stage: Stage, place: str, path: str) -> None:
    """What the settings say of a console."""
    file = stage.twin.settings_path
    port = stage.host(place).broker.console_port
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(f":{port}/console/jolokia", f":{port}{path}"), encoding="utf-8")


def workloads(stage: Stage) -> None:
    """Those of London run; what they are asked for stands in `work/workloads.log`."""
    told = yaml.safe_load(stage.twin.settings_path.read_text(encoding="utf-8"))
    for site, part in told["sites"].items():
        part["workloads"] = []
        for name in ("billing", "mailer"):
            stage.works[f"{name} at {site}"] = work = Work(stage.home / "work", site, name, running=site == "london")
            part["workloads"].append(work.told(singleton=name == "billing"))
    stage.twin.settings_path.write_text(yaml.safe_dump(told, sort_keys=False), encoding="utf-8")


def works(stage: Stage, work: str, now: str) -> None:
    stage.works[work].set(running=now == "running")


def switched(stage: Stage, work: str, verb: str, how: str) -> None:
    name = {"fails": "fails", "hangs": "hangs"}.get(how, "broken")
    stage.works[work].switch(f"{verb}.{name}", on=how != "whole")


def dead_letter(stage: Stage, place: str) -> None:
    broker: Broker = stage.host(place).broker
    with stage.twin.still():
        broker.route(Message(broker.next_number(), "ActiveMQ.DLQ", b"dead", text=True, headers={}))


_AT: Final = r"(?P<place>[\w/.-]+)"
ODDITIES: Final[Sequence[tuple[str, Callable[..., object]]]] = (
    (rf"the disk of {_AT} is (?P<share>\d+)% full", disk),
    (rf"the memory of {_AT} ends at (?P<most>\d+) bytes", memory),
    (rf"address (?P<queue>\S+) at {_AT} ends at (?P<most>-?\d+) bytes, (?P<policy>[A-Z]+)", address),
    (rf"address (?P<queue>\S+) at {_AT} is (?P<how>paused|blocked)", held),
    (rf"{_AT} uses (?P<share>\d+)% of its (?P<of>\w+)", usage),
    (rf"{_AT} has a guest by (?P<door>\S+), (?P<protocol>\w+)( as (?P<user>\S+))?( named (?P<client>\S+))?", guest),
    (rf"the guests of {_AT} leave", guests_leave),
    (rf"{_AT} has no link", no_link),
    (rf"{_AT} is one of a cluster(?P<named>, by another address)?", cluster),
    (rf"{_AT} forgets (?P<count>\d+) ids of (?P<queue>\S+)", forget),
    (rf"{_AT} announces its ids once more", announce),
    (rf"{_AT} writes down (?P<count>\d+) ids of (?P<queue>\S+) and announces none", unannounced),
    (rf"the processor of {_AT} stops", processor_stops),
    (rf"the bridge of (?P<queue>\S+) at {_AT} stops", bridge_stops),
    (rf"{_AT} takes what is sent to (?P<queue>\S+)", takes_sends),
    (rf"{_AT} has no divert of (?P<queue>\S+)", no_divert),
    (rf"{_AT} has no bridge", no_bridge),
    (rf"{_AT} lets clients in", lambda stage, place: stage.twin.open_clients(place)),
    (r"the agents stop", agents_stop),
    (rf"{_AT} damages (?P<count>\d+|all) of (?P<queue>\S+)", loses),
    (rf"{_AT}'s store is emptied", emptied),
    (rf"queue (?P<queue>\S+) at {_AT} has (?P<name>\S+) (?P<value>true|false)", option),
    (rf"the console of {_AT} is sought at (?P<path>\S+)", sought_at),
    (r"workload billing, a singleton, and workload mailer at both sites", workloads),
    (r"(?P<work>\w+ at \w+) is (?P<now>running|stopped)", works),
    (r"(?P<work>\w+ at \w+): (?P<verb>start|stop|state) (?P<how>fails|hangs|broken|whole)", switched),
    (rf"a dead letter at {_AT}", dead_letter),
    (
        r"looked at london (?P<ago>\d+) s ago",
        lambda stage, ago: looks.looked(stage.twin.settings_path.parent, float(ago)),
    ),
)
