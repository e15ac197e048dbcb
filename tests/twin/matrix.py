"""What the matrices share: operations on a twin with what must have been done before, and the judge of how they end."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from dr_ctl.core.system import boottime_s, system
from dr_ctl.engine.plan import Call, Goal
from dr_ctl.engine.ports import Outcome
from dr_ctl.jolokia.client import Answer, Wire
from dr_ctl.topologies.common.tools import Sender
from dr_ctl.topologies.continuity.tools import PluginTimeouts
from dr_ctl.topologies.mirror.tools import MirrorTimeouts
from dr_ctl.topologies.workloads.sites import WorkloadSites
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.bridges.broker import BridgesBroker
from dr_ctl_lab.twin.broker import Broker
from dr_ctl_lab.twin.classic.brokersync.broker import BrokerSyncBroker
from dr_ctl_lab.twin.classic.fanout.broker import ID_HEADER, FanoutBroker
from dr_ctl_lab.twin.classic.sharedstore.broker import SharedStoreBroker
from dr_ctl_lab.twin.host import APP, Host
from dr_ctl_lab.twin.jolokia import Request
from dr_ctl_lab.twin.kinds import BRIDGES, SHARED_STORE
from dr_ctl_lab.twin.messages import Message, Queue
from tests.broker.driving import Ended, Stage
from tests.conftest import Command
from tests.timeouts import impatient
from tests.twin.subject import until

ACCEPTED = ("--accept-loss", "unknown", "--accept-duplicates", "unknown")
QUICK_S = 0.4
RESTS_S, RESTS_WITHIN_S = 0.1, 3.0
COMMANDS = "continuity.cmd.out"
NOTHING_CHANGED = (10, 11, 12, 13, 14)
GIVEN = "given"  # the header that tells each message of `put` from all others, at both sites
# A shared store has no link to cut, the other site lacks nothing, and a failover has nothing to do: with its holder's
# death the store goes to who waits, and that lets clients in. So there is no request to fail or to die at, and nothing
# is owed: the lock keeps clients out of the site that was lost.
TAKEN_OVER = (SHARED_STORE,)
_TAKEN: set[str] = set()


@contextmanager
def edited(stage: Stage) -> Iterator[dict[str, Any]]:
    """Its settings, to be written anew as they are left."""
    document: dict[str, Any] = yaml.load(stage.settings_path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    yield document
    text = yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False)
    stage.settings_path.write_text(text, encoding="utf-8")


def put(twin: PlayedTwin, site: str, queue: str, count: int, pair: str | None = None) -> None:
    """Messages as clients send them; its listener may be closed. Producers that write to both sites do so while they
    can."""
    brokers = [twin.host(site, pair).broker]
    peer = twin.host(twin.other(site), pair).broker
    if isinstance(brokers[0], FanoutBroker) and brokers[0].attached:
        brokers.append(peer)
    with twin.locked():
        for number in range(count):
            given = str(uuid4())
            body, headers = f"message {number}".encode(), {"n": str(number), GIVEN: given, ID_HEADER: given}
            for broker in brokers:
                now_ms, items = broker.now_ms(), {**headers}
                broker.route(Message(broker.next_number(), queue, body, text=True, headers=items, timestamp_ms=now_ms))


def take(twin: PlayedTwin, site: str, queue: str) -> None:
    """The first message of a queue, as a client takes it; where the peer's copies stay, it tells the peer its id."""
    broker = twin.host(site).broker
    with twin.locked():
        lying = broker.queues[queue]
        message = next(lying.available())
        if isinstance(broker, BridgesBroker):
            ident = broker.identity(message)
            broker.ids.add(queue, ident, local=True)
            broker.notify(queue, ident)
        if isinstance(broker, FanoutBroker):
            broker.ids.add(queue, message.headers[ID_HEADER], local=True)
        broker.remove(lying, message)
        _TAKEN.add(message.headers[GIVEN])


def unprocessed(twin: PlayedTwin) -> set[str]:
    """Who the messages are that lie anywhere, and that no client has taken."""
    with twin.locked():
        brokers = [twin.host(site, pair).broker for site in twin.sites for pair in twin.pairs]
        lying = {
            message.headers[GIVEN]
            # Of brokers that share a store, one at most shows what lies in it.
            for holder in (*brokers, *(broker.store for broker in twin.brokers(SharedStoreBroker)))
            for queue in holder.queues.values()
            for message in queue.messages.values()
            if GIVEN in message.headers
        }
    return lying - _TAKEN


def fence(twin: PlayedTwin, dr_ctl: Command) -> None:
    nothing(twin, dr_ctl)
    done(dr_ctl("fence", "london", "--yes"))


def drain(twin: PlayedTwin, dr_ctl: Command) -> None:
    fence(twin, dr_ctl)
    done(dr_ctl("drain", "--to", "paris", "--yes"))


def lose(twin: PlayedTwin, dr_ctl: Command) -> None:
    """London dies with a message and an acknowledgement that Paris lacks. An agent is no part of the link that is cut:
    where there is one, the copy of what was taken is gone."""
    taken_over = twin.kind.topology in TAKEN_OVER
    put(twin, "london", "orders.in", 2)
    twin.wait_mirrored()
    twin.cut("london")
    until(lambda: taken_over or not twin.host("london").broker.attached)
    put(twin, "london", "orders.out", 1)
    take(twin, "london", "orders.in")
    until(lambda: all(broker.agent is None or broker.agent.idle for broker in twin.brokers(BrokerSyncBroker)))
    twin.kill("london")
    until(lambda: serving(twin) == ("paris",) if taken_over else not twin.host("paris").broker.attached)


def lose_and_return(twin: PlayedTwin, dr_ctl: Command) -> None:
    lose(twin, dr_ctl)
    done(dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED))
    twin.heal()
    twin.start("london")
    until(lambda: twin.host("paris").broker.attached)  # it dials anew by itself, and ships what it has to say


def nothing(twin: PlayedTwin, dr_ctl: Command) -> None:
    """It begins with London serving, and Paris in step."""
    for queue in ("orders.in", "orders.out"):
        put(twin, "london", queue, 2)
    twin.wait_mirrored()


def done(ended: Ended) -> Ended:
    assert ended.code == 0, ended.document
    return ended


@dataclass(frozen=True)
class Operation:
    """A command, what is done before it, and the sites that serve when it has done its work."""

    words: tuple[str, ...]
    before: Callable[[PlayedTwin, Command], None]
    serving: tuple[str, ...]
    paused: bool = False
    owed: bool = False

    @property
    def name(self) -> str:
        return self.words[0]

    def wanted(self, twin: PlayedTwin) -> bool:
        """Say whether what was asked for really holds."""
        return (
            serving(twin) == self.serving
            and all(open_at(twin, site) == {*twin.queues} for site in self.serving)
            and all(twin.host(site).broker.serves or self.paused for site in self.serving)
            and bool(paused(twin)) is self.paused
            and any(name.startswith("dr-ctl.debt.") for name in documents(twin))
            is (self.owed and twin.kind.topology not in TAKEN_OVER)
        )


OPERATIONS = {
    case.name: case
    for case in (
        Operation(("swapover", "--to", "paris"), nothing, ("paris",)),
        Operation(("quiesce", "london"), nothing, ("london",), paused=True),
        Operation(("fence", "london"), nothing, ()),
        Operation(("drain", "--to", "paris"), fence, ()),
        Operation(("activate", "paris"), drain, ("paris",)),
        Operation(("unfence", "london"), fence, ("london",)),
        Operation(("failover", "--to", "paris", *ACCEPTED), lose, ("paris",), owed=True),
        Operation(("reinstate", "london"), lose_and_return, ("paris",)),
        Operation(("failback", "--to", "london"), lose_and_return, ("london",)),
    )
}


def let_in(broker: Broker, queues: Sequence[str]) -> set[str]:
    """The queues whose clients a broker would serve, were they at its listener. Where bridges join the sites, whoever
    may send there or consume is in: a pause alone ends nothing, and may be a run's."""
    words = ("send", "consume") if isinstance(broker, BridgesBroker) else ("send",)
    return {name for name in queues if any(broker.security.may(APP, word, name) for word in words)}


def open_at(twin: PlayedTwin, site: str, pair: str | None = None) -> set[str]:
    """The queues that clients reach at a site, whoever asks."""
    return let_in(twin.host(site, pair).broker, twin.queues) if reached(twin, site, pair) else set()


def reached(twin: PlayedTwin, site: str, pair: str | None = None) -> bool:
    broker = twin.host(site, pair).broker
    return bool(broker.alive and broker.acceptors[broker.clients_listener].started)


def serving(twin: PlayedTwin) -> tuple[str, ...]:
    """The sites that let clients in, and let them work."""
    return tuple(site for site in twin.sites if open_at(twin, site))


def paused(twin: PlayedTwin) -> list[str]:
    owed = any(name.startswith("dr-ctl.debt.") for name in documents(twin))
    brokers = {site: twin.host(site).broker for site in twin.sites}
    return [
        f"{site} {name}"
        for site, broker in brokers.items()
        if broker.alive
        for name, queue in broker.queues.items()
        # What the plugin would tell a lost site is kept for as long as the debt stands, and no longer.
        if queue.paused and not (owed and name == COMMANDS) and not gated(broker, queue)
    ]


def gated(broker: Broker, queue: Queue) -> bool:
    """Say whether a pause is a part of what keeps clients out of a queue."""
    return isinstance(broker, BridgesBroker) and queue.paused and not let_in(broker, [queue.address])


def kept(twin: PlayedTwin, site: str) -> dict[str, dict[str, frozenset[str]]]:
    """What management has set at a site, by match: the roles that may do something, and what."""
    security = twin.host(site).broker.security
    return {match: {role: may for role, may in grants.items() if may} for match, grants in security.stored.items()}


def documents(twin: PlayedTwin) -> list[str]:
    """Those at the brokers, and those of brokers that keep none."""
    kept = Path(os.environ.get("DR_CTL_STATE_DIR", twin.directory)).glob("**/documents/*/*/*.*")
    queues = [name for site in twin.sites for name in twin.host(site).broker.queues if name.startswith("dr-ctl.")]
    return [*queues, *(path.name for path in kept)]


def scene(twin: PlayedTwin) -> dict[str, Any]:
    """All that can be set and all messages, but for the documents of dr-ctl's own."""
    dump = twin.dump()
    for item in dump.values():
        for part in (item["settable"]["queues"], item["messages"]):
            for name in [name for name in part if name.startswith("dr-ctl.")]:
                del part[name]
        addresses = item["settable"]["addresses"]
        item["settable"]["addresses"] = [name for name in addresses if not name.startswith("dr-ctl.")]
    return dump


def at_rest(twin: PlayedTwin) -> dict[str, Any]:
    """The scene once it has stayed the same for a while: the end of a run does not wait for the last confirmation."""
    end = boottime_s() + RESTS_WITHIN_S
    now, since = scene(twin), boottime_s()
    while boottime_s() - since < RESTS_S and boottime_s() < end:
        system().sleep(0.01)
        if (snapshot := scene(twin)) != now:
            now, since = snapshot, boottime_s()
    return now


def as_undone(document: dict[str, Any], twin: PlayedTwin, operation: Operation) -> dict[str, Any]:
    """What an undo has to put back of a scene. A site that came back stays closed, whatever becomes of its return:
    where bridges join the sites, queue by queue. One that was taken in stays so, and so do the listener and the rights
    that let it."""
    by_name = {name: dict(item["settable"]) for name, item in document.items()}
    returns = operation.before is lose_and_return
    rejoined = returns and not any(name.startswith("dr-ctl.debt.") for name in documents(twin))
    for name, value in by_name.items():
        if rejoined:
            value["listeners"] = {
                listener: is_open
                for listener, is_open in value["listeners"].items()
                if listener in ("clients", "stomp")
            }
            # The first message that arrives by it makes such a queue.
            value["queues"] = {
                queue: item for queue, item in value["queues"].items() if ".to-" not in queue and queue != COMMANDS
            }
            value["addresses"] = [address for address in value["addresses"] if ".to-" not in address]
            value["security"] = {match: may for match, may in value["security"].items() if not match.startswith("$")}
        if returns and twin.kind.topology == BRIDGES and name.startswith("london/"):
            for part in ("queues", "security", *(["listeners"] if rejoined else [])):
                del value[part]
    return by_name


class Died(BaseException):
    """The process ends here; nothing on the way may catch it."""


def die() -> None:
    raise Died


class Death:
    """Ends the process right before or right after its n-th request that changes a broker or a workload, or does `act`
    there; `requests` says of each before which of the calls it was made, and after which it was answered."""

    def __init__(
        self, at: int | None, *, after: bool, calls: Sequence[object] = (), act: Callable[[], object] = die
    ) -> None:
        self.at, self.after, self._act = at, after, act
        self.requests = list[tuple[int, int]]()
        self._calls = calls
        self._counting = threading.Lock()

    def strike(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Sender, "_post", self._mortal(Sender._post))
        monkeypatch.setattr(WorkloadSites, "send", self._mortal(WorkloadSites.send))

    def _mortal(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def mortal(*given: Any) -> Any:
            made = len(self._calls) + 1
            with self._counting:  # both sites' requests may go out at the same time
                nth = len(self.requests)
                self.requests.append((made, made))
            strikes = nth + 1 == self.at
            if strikes and not self.after:
                self._act()
            outcome = send(*given)
            self.requests[nth] = (made, len(self._calls))
            if strikes and self.after:
                self._act()
            return outcome

        return mortal


def effects(twin: PlayedTwin) -> list[tuple[str, str, str]]:
    """What was changed, each as often as it was, without the documents of dr-ctl's own and its probe. A role's setting
    that is taken away twice in a row was taken away once: that it is in force does not say whether it still stands."""
    items = []
    for change in twin.changes():
        if "Queue(" in change.operation or "BrokerConnection(" in change.operation:
            continue
        effect = (change.site, change.bean, change.operation)
        if "SecuritySettings(" not in change.operation or items[-1:] != [effect]:
            items.append(effect)
    return sorted(items)


def bare(document: dict[str, Any]) -> dict[str, Any]:
    """A scene without what differs from twin to twin: where messages were born."""
    return {
        name: {
            "settable": value["settable"],
            "messages": {queue: len(held) for queue, held in value["messages"].items()},
        }
        for name, value in document.items()
    }


def at_calls(
    patch: pytest.MonkeyPatch, goal: Goal, act: Callable[[], object], *, at: str = "", first: bool = False
) -> None:
    """Have something happen as soon as calls of that kind have been answered, at any site or at one; `first`: right
    before they go out."""
    post = Sender._post

    def posted(sender: Sender, calls: Sequence[Call]) -> Sequence[Outcome]:
        meant = any(call.goal is goal and call.site.startswith(at) for call in calls)
        if meant and first:
            act()
        outcomes = post(sender, calls)
        if meant and not first:
            act()
        return outcomes

    patch.setattr(Sender, "_post", posted)


def goals(patch: pytest.MonkeyPatch) -> list[list[Goal | None]]:
    """What the calls of each request are for, as they go out from now on."""
    post, sent = Sender._post, list[list[Goal | None]]()

    def posted(sender: Sender, calls: Sequence[Call]) -> Sequence[Outcome]:
        sent.append([call.goal for call in calls])
        return post(sender, calls)

    patch.setattr(Sender, "_post", posted)
    return sent


def dies(dr_ctl: Command, *words: str, once: Goal = Goal.OPEN, first: bool = False, by: Death | None = None) -> None:
    """A command whose process ends as soon as it has opened a site, or did something else."""
    with pytest.MonkeyPatch.context() as patch:
        by.strike(patch) if by is not None else at_calls(patch, once, die, first=first)
        with pytest.raises(Died):
            dr_ctl(*words, "--yes")


def without_agents(twin: PlayedTwin) -> None:
    """No agent of the twin's own deletes copies."""
    for broker in twin.brokers(BrokerSyncBroker):
        if broker.agent is not None:
            broker.agent.stop()


class Judge:
    """Stands at every client listener of a twin, and looks after every request: notes what is open at both sites."""

    def __init__(self, twin: PlayedTwin, monkeypatch: pytest.MonkeyPatch) -> None:
        self.twice: list[str] = []
        self._twin = twin
        for site in twin.sites:
            for pair in twin.pairs:
                for host in twin.nodes(site, pair).hosts:
                    monkeypatch.setattr(host, "open", self._at_the_listener(host))
                    monkeypatch.setattr(host, "record_change", self._after(host))

    def _at_the_listener(self, host: Host) -> Callable[[str], None]:
        opens, broker = host.open, host.broker

        def opened(listener: str) -> None:
            if listener == broker.clients_listener:
                self._note(broker, let_in(broker, self._twin.queues))
            opens(listener)

        return opened

    def _after(self, host: Host) -> Callable[[Request, int], None]:
        record_change, broker = host.record_change, host.broker

        def noted(request: Request, status: int) -> None:
            record_change(request, status)
            self._note(broker, open_at(self._twin, broker.site, broker.pair))

        return noted

    def _note(self, broker: Broker, value: set[str]) -> None:
        both = value & open_at(self._twin, self._twin.other(broker.site), broker.pair)
        self.twice += [f"{broker.site}/{broker.pair} {name}" for name in sorted(both)]


@contextmanager
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no wait of the block last: a time-out is told after a moment, an undo gives up after a few."""
    post = Wire.post

    def soon(self: Wire, bodies: Sequence[Any], timeout_s: float) -> list[Answer]:
        return post(self, bodies, min(timeout_s, QUICK_S))

    with monkeypatch.context() as patch:
        patch.setattr(Wire, "post", soon)
        impatient(patch, fence_s=0.5, undo_s=2.0, activate_s=0.5, store_taken_s=0.5)
        impatient(patch, MirrorTimeouts, left_over_s=0.3)
        impatient(patch, PluginTimeouts, watch_at_most_s=3.0)
        yield
