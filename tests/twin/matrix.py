"""Operations on a twin with their preparations, faults for them, and checks of their ends."""

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
GIVEN = "given"  # the header with the unique id of each message of `put`, the same at both sites
# A shared store has no link, and a failover has nothing to do: when the holder dies, the other broker takes the store
# and serves. So the failover makes no request and leaves no debt: the lock keeps clients out of the lost site.
TAKEN_OVER = (SHARED_STORE,)
_TAKEN: set[str] = set()


@contextmanager
def edited(stage: Stage) -> Iterator[dict[str, Any]]:
    """The settings of a stage; changes of the block are written back."""
    document: dict[str, Any] = yaml.load(stage.settings_path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    yield document
    text = yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False)
    stage.settings_path.write_text(text, encoding="utf-8")


def put(twin: PlayedTwin, site: str, queue: str, count: int, pair: str | None = None) -> None:
    """Send messages like a client, even where the listener is closed; with fan-out to both sites."""
    brokers = [twin.host(site, pair).broker]
    peer = twin.host(twin.other(site), pair).broker
    if isinstance(brokers[0], FanoutBroker) and brokers[0].attached:
        brokers.append(peer)
    with twin.locked():
        for number in range(count):
            ident = str(uuid4())
            body, headers = f"message {number}".encode(), {"n": str(number), GIVEN: ident, ID_HEADER: ident}
            for broker in brokers:
                now_ms, items = broker.now_ms(), {**headers}
                broker.route(Message(broker.next_number(), queue, body, text=True, headers=items, timestamp_ms=now_ms))


def take(twin: PlayedTwin, site: str, queue: str) -> None:
    """Consume the first message of a queue like a client, and store its id where consumers are idempotent."""
    broker = twin.host(site).broker
    with twin.locked():
        stored = broker.queues[queue]
        message = next(stored.available())
        if isinstance(broker, BridgesBroker):
            ident = broker.identity(message)
            broker.ids.add(queue, ident, local=True)
            broker.notify(queue, ident)
        if isinstance(broker, FanoutBroker):
            broker.ids.add(queue, message.headers[ID_HEADER], local=True)
        broker.remove(stored, message)
        _TAKEN.add(message.headers[GIVEN])


def unprocessed(twin: PlayedTwin) -> set[str]:
    """The ids of all stored messages that no client has consumed."""
    with twin.locked():
        brokers = [twin.host(site, pair).broker for site in twin.sites for pair in twin.pairs]
        idents = {
            message.headers[GIVEN]
            # Of brokers that share a store, at most one shows its messages.
            for holder in (*brokers, *(broker.store for broker in twin.brokers(SharedStoreBroker)))
            for queue in holder.queues.values()
            for message in queue.messages.values()
            if GIVEN in message.headers
        }
    return idents - _TAKEN


def fence(twin: PlayedTwin, dr_ctl: Command) -> None:
    nothing(twin, dr_ctl)
    done(dr_ctl("fence", "london", "--yes"))


def drain(twin: PlayedTwin, dr_ctl: Command) -> None:
    fence(twin, dr_ctl)
    done(dr_ctl("drain", "--to", "paris", "--yes"))


def lose(twin: PlayedTwin, dr_ctl: Command) -> None:
    """Kill London with a message and an acknowledgement that were not shipped. An agent is not affected by the cut
    link: it deletes the consumed message's copy."""
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
    until(lambda: twin.host("paris").broker.attached)  # the link reconnects by itself


def nothing(twin: PlayedTwin, dr_ctl: Command) -> None:
    """Send messages to London, and wait until Paris has them."""
    for queue in ("orders.in", "orders.out"):
        put(twin, "london", queue, 2)
    twin.wait_mirrored()


def done(ended: Ended) -> Ended:
    assert ended.code == 0, ended.document
    return ended


@dataclass(frozen=True)
class Operation:
    """A command, its preparation, and the state after it."""

    words: tuple[str, ...]
    before: Callable[[PlayedTwin, Command], None]
    serving: tuple[str, ...]
    paused: bool = False
    owed: bool = False

    @property
    def name(self) -> str:
        return self.words[0]

    def wanted(self, twin: PlayedTwin) -> bool:
        """Say whether the state after the command holds."""
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
    """The queues whose clients have the rights to use them, apart from listeners and pauses."""
    words = ("send", "consume") if isinstance(broker, BridgesBroker) else ("send",)
    return {name for name in queues if any(broker.security.may(APP, word, name) for word in words)}


def open_at(twin: PlayedTwin, site: str, pair: str | None = None) -> set[str]:
    """The queues that clients can use at a site."""
    return let_in(twin.host(site, pair).broker, twin.queues) if reached(twin, site, pair) else set()


def reached(twin: PlayedTwin, site: str, pair: str | None = None) -> bool:
    broker = twin.host(site, pair).broker
    return bool(broker.alive and broker.acceptors[broker.clients_listener].started)


def serving(twin: PlayedTwin) -> tuple[str, ...]:
    """The sites that clients can use."""
    return tuple(site for site in twin.sites if open_at(twin, site))


def paused(twin: PlayedTwin) -> list[str]:
    owed = any(name.startswith("dr-ctl.debt.") for name in documents(twin))
    brokers = {site: twin.host(site).broker for site in twin.sites}
    return [
        f"{site} {name}"
        for site, broker in brokers.items()
        if broker.alive
        for name, queue in broker.queues.items()
        # The plugin's commands to a lost site are paused while the debt exists.
        if queue.paused and not (owed and name == COMMANDS) and not gated(broker, queue)
    ]


def gated(broker: Broker, queue: Queue) -> bool:
    """Say whether a pause belongs to a closed queue."""
    return isinstance(broker, BridgesBroker) and queue.paused and not let_in(broker, [queue.address])


def kept(twin: PlayedTwin, site: str) -> dict[str, dict[str, frozenset[str]]]:
    """The rights that management has set at a site, by match and role."""
    security = twin.host(site).broker.security
    return {match: {role: may for role, may in grants.items() if may} for match, grants in security.stored.items()}


def documents(twin: PlayedTwin) -> list[str]:
    """dr-ctl's documents at the brokers, and in the state directory for brokers without any."""
    kept = Path(os.environ.get("DR_CTL_STATE_DIR", twin.directory)).glob("**/documents/*/*/*.*")
    queues = [name for site in twin.sites for name in twin.host(site).broker.queues if name.startswith("dr-ctl.")]
    return [*queues, *(path.name for path in kept)]


def scene(twin: PlayedTwin) -> dict[str, Any]:
    """The settable state and the messages, without dr-ctl's documents."""
    dump = twin.dump()
    for item in dump.values():
        for part in (item["settable"]["queues"], item["messages"]):
            for name in [name for name in part if name.startswith("dr-ctl.")]:
                del part[name]
        addresses = item["settable"]["addresses"]
        item["settable"]["addresses"] = [name for name in addresses if not name.startswith("dr-ctl.")]
    return dump


def at_rest(twin: PlayedTwin) -> dict[str, Any]:
    """The scene once it no longer changes: a run does not wait for the last confirmations."""
    end = boottime_s() + RESTS_WITHIN_S
    now, since = scene(twin), boottime_s()
    while boottime_s() - since < RESTS_S and boottime_s() < end:
        system().sleep(0.01)
        if (snapshot := scene(twin)) != now:
            now, since = snapshot, boottime_s()
    return now


def as_undone(document: dict[str, Any], twin: PlayedTwin, operation: Operation) -> dict[str, Any]:
    """The parts of a scene that an undo restores. A site that came back stays closed, with bridges queue by queue; a
    reinstated one stays reinstated, with its listener and rights."""
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
            # The first message over the link creates such a queue.
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
    """The process dies; no code may catch it."""


def die() -> None:
    raise Died


class Death:
    """Ends the process, or calls `act`, right before or after its n-th changing request. `requests` has of each request
    the number of the next call, and of the last call at its answer."""

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
        def mortal(*arguments: Any) -> Any:
            made = len(self._calls) + 1
            with self._counting:  # both sites' requests may go out at the same time
                nth = len(self.requests)
                self.requests.append((made, made))
            strikes = nth + 1 == self.at
            if strikes and not self.after:
                self._act()
            outcome = send(*arguments)
            self.requests[nth] = (made, len(self._calls))
            if strikes and self.after:
                self._act()
            return outcome

        return mortal


def effects(twin: PlayedTwin) -> list[tuple[str, str, str]]:
    """All changes, sorted, without those of dr-ctl's documents and probes. Two successive removals of a role's setting
    count once: a run cannot see whether a setting is stored."""
    result = []
    for change in twin.changes():
        if "Queue(" in change.operation or "BrokerConnection(" in change.operation:
            continue
        effect = (change.site, change.bean, change.operation)
        if "SecuritySettings(" not in change.operation or result[-1:] != [effect]:
            result.append(effect)
    return sorted(result)


def bare(document: dict[str, Any]) -> dict[str, Any]:
    """A scene with counts in the place of messages, whose origins differ from twin to twin."""
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
    """Call `act` after calls with a goal were answered, at any site or at one; with `first` before they are sent."""
    post = Sender._post

    def posted(sender: Sender, calls: Sequence[Call]) -> Sequence[Outcome]:
        has_goal = any(call.goal is goal and call.site.startswith(at) for call in calls)
        if has_goal and first:
            act()
        outcomes = post(sender, calls)
        if has_goal and not first:
            act()
        return outcomes

    patch.setattr(Sender, "_post", posted)


def goals(patch: pytest.MonkeyPatch) -> list[list[Goal | None]]:
    """Record the goals of each request's calls."""
    post, sent = Sender._post, list[list[Goal | None]]()

    def posted(sender: Sender, calls: Sequence[Call]) -> Sequence[Outcome]:
        sent.append([call.goal for call in calls])
        return post(sender, calls)

    patch.setattr(Sender, "_post", posted)
    return sent


def dies(dr_ctl: Command, *words: str, once: Goal = Goal.OPEN, first: bool = False, by: Death | None = None) -> None:
    """Run a command whose process dies after calls with the goal `once`, or by another death."""
    with pytest.MonkeyPatch.context() as patch:
        by.strike(patch) if by is not None else at_calls(patch, once, die, first=first)
        with pytest.raises(Died):
            dr_ctl(*words, "--yes")


def without_agents(twin: PlayedTwin) -> None:
    """Stop the twin's own agents."""
    for broker in twin.brokers(BrokerSyncBroker):
        if broker.agent is not None:
            broker.agent.stop()


class Judge:
    """Checks after every change whether a queue is open at both sites, and lists those that were."""

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
        open_twice = value & open_at(self._twin, self._twin.other(broker.site), broker.pair)
        self.twice += [f"{broker.site}/{broker.pair} {name}" for name in sorted(open_twice)]


@contextmanager
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Shorten all waits in the block."""
    post = Wire.post

    def soon(self: Wire, bodies: Sequence[Any], timeout_s: float) -> list[Answer]:
        return post(self, bodies, min(timeout_s, QUICK_S))

    with monkeypatch.context() as patch:
        patch.setattr(Wire, "post", soon)
        impatient(patch, fence_s=0.5, undo_s=2.0, activate_s=0.5, store_taken_s=0.5)
        impatient(patch, MirrorTimeouts, left_over_s=0.3)
        impatient(patch, PluginTimeouts, watch_at_most_s=3.0)
        yield
