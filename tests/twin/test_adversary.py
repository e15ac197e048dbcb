"""An adversary that never tires: plays the steps of a script on two sites, and judges after each. It does so on each
topology: for a moment always, for longer at night, for hours before a release. `DR_CTL_SEEDS=7,8` takes other seeds,
`DR_CTL_STEPS=200` longer scripts, `DR_CTL_SCRIPT=FILE` the steps of a file.

Nothing that no client had is at neither site. No command opens both, or tells an end that is not so. A failover loses
and doubles no more than was said. In the end, when nothing is broken any more, the commands that `status` and refusals
advise make one site serve. A stage is a twin or two real brokers; of those only the end and the commands are judged.
Where the brokers of a twin have two nodes, the active ones die on their own, in the middle of a command too.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shlex
import signal
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

import pytest
import yaml

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.system import boottime_s, system
from dr_ctl.settings.loader import load
from dr_ctl.stomp_io.client import Connection, ConnectionLost, Frame, probe
from dr_ctl_lab.lab.clients.client import ID_HEADER
from dr_ctl_lab.lab.clients.stomp import identify
from dr_ctl_lab.lab.dialect import ARTEMIS, Dialect
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.ledger import Event, Ledger
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.recording import recording
from dr_ctl_lab.twin.classic.brokersync.broker import BrokerSyncBroker
from dr_ctl_lab.twin.classic.sharedstore.broker import SharedStoreBroker
from dr_ctl_lab.twin.continuity.broker import ContinuityBroker
from dr_ctl_lab.twin.faults import Faults
from dr_ctl_lab.twin.kinds import BRIDGES, BROKERSYNC, CONTINUITY, FANOUT, MIRROR, SHARED_STORE
from dr_ctl_lab.twin.messages import Message, Queue
from dr_ctl_lab.twin.nodes import Layout
from tests.broker.driving import Ended, Operator, Stage, end_all
from tests.conftest import Command
from tests.timeouts import impatient
from tests.topologies.continuity.plugin import needs_plugin
from tests.twin.conftest import OTHERS, prompt
from tests.twin.matrix import Death, Died, Judge, die, open_at, paused, reached, serving, without_agents
from tests.twin.subject import until
from tests.twin.test_remedies import hurry as brief

TOPOLOGIES = (MIRROR, *OTHERS)
GROUPS = tuple(
    topology for topology in TOPOLOGIES if topology != SHARED_STORE
)  # whose two brokers are nodes of one already
BY_IDS = (BRIDGES, FANOUT)  # their consumers are idempotent, and each is a part of the load
ANY = ("unknown", "0", "50", "100000")
PATH = os.environ["PATH"]  # with Java, which real brokers need
TAKES_OVER = 0.2
MOMENT = (1, 10)  # seed, steps
NIGHT = ((2, 100), (3, 100))
CHOSEN = os.environ.get("DR_CTL_SEEDS", ",".join(str(seed) for seed in range(4, 24)))
STEPS = int(os.environ.get("DR_CTL_STEPS", "100"))
STAGES = [*((topology, 1) for topology in TOPOLOGIES), *((topology, 2) for topology in GROUPS)]  # nodes of a broker
CASES = [
    *((*stage, *MOMENT) for stage in STAGES[: len(TOPOLOGIES) + 1]),
    *(pytest.param(*stage, *item, marks=pytest.mark.deep) for stage in STAGES for item in NIGHT),
    *(
        pytest.param(*stage, int(seed), STEPS, marks=pytest.mark.chaos)
        for stage in STAGES
        for seed in CHOSEN.split(",")
    ),
]
REAL = [
    pytest.param(topology, int(seed), STEPS, marks=(needs_plugin,) if topology == CONTINUITY else ())
    for topology in TOPOLOGIES
    for seed in CHOSEN.split(",")[:2]
]


def script(topology: str, seed: int, steps: int, nodes: int = 1) -> list[str]:
    """The steps of a seed, equal for equal seeds."""
    chance = random.Random(f"{topology} {seed}" + (f" {nodes}" if nodes > 1 else ""))
    lines: list[str] = []
    while len(lines) < steps:
        if nodes > 1 and chance.random() < TAKES_OVER:
            lines += _taken_over(topology, chance)
        lines += _some(topology, chance)
    return lines[:steps]


def _taken_over(topology: str, chance: random.Random) -> Sequence[str]:
    """A node dies by itself, or on the way of a command, and may return, which is a takeover too."""
    site = chance.choice(("SERVING", "SERVING", "WAITING"))
    typed = _typed(topology, chance).partition(": ")[2]
    some = ([f"takeover {site}"], [f"here loses {site} {chance.randrange(1, 9)}: {typed}"])
    return [*chance.choice(some), *chance.choice(([], ["start"], ["work 5", "start"]))]


def _some(topology: str, chance: random.Random) -> Sequence[str]:
    kinds: list[tuple[int, Callable[[], Sequence[str]]]] = [
        (14, lambda: _traffic(topology, chance)),
        (16, lambda: [_typed(topology, chance)]),
        (4, lambda: _outage(chance)),
        (5, lambda: _trouble(topology, chance)),
        (2, lambda: _by_itself(chance)),
        (2, lambda: [f"faults {chance.choice(('SERVING', 'WAITING'))} {chance.randrange(1000)}"]),
        (2, lambda: ["well"]),
        (1, lambda: ["operator"] if topology not in BY_IDS else ["work 20"]),
    ]
    [some] = chance.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])
    return some()


def _traffic(topology: str, chance: random.Random) -> Sequence[str]:
    queue = chance.choice(("orders.in", "orders.out"))
    end = chance.choice(("commit", "abort", "open"))
    some = [[f"work {chance.randrange(5, 30)}"], [chance.choice(("no producers", "producers"))]]
    if topology not in BY_IDS:
        some += [
            [f"send {queue} {chance.randrange(1, 6)} now {chance.randrange(10)}"],
            [f"send {queue} {chance.randrange(1, 6)} {end} {chance.randrange(10)}"],
            [f"take {queue} {chance.randrange(1, 4)} {chance.choice(('now', 'hold', end))}"],
            ["let go"],
        ]
        if topology in CLASSIC:
            some.append([f"take {queue} 1 refuse"])
    return chance.choice(some)


def _outage(chance: random.Random) -> Sequence[str]:
    """A site is lost, and perhaps replaced, and perhaps taken in again."""
    site = chance.choice(("SERVING", "SERVING", "WAITING"))
    lost = chance.choice((f"kill {site}", f"kill {site}", f"freeze {site}", f"sick {site}"))
    accepted = _accepting(chance, ANY)
    rest = [
        [],
        [_whoever(chance) + f"failover --to WAITING --yes {accepted}"],
        [_whoever(chance) + f"failover --to WAITING --yes {accepted}", "work 10", "well"],
        ["well"],
        [
            _whoever(chance) + f"failover --to WAITING --yes {_accepting(chance, ('unknown', '100000'))}",
            "well",
            "here: failback --to WAITING --yes",
        ],
    ]
    before = [[f"cut {chance.choice(('SERVING', 'WAITING'))}", "work 10"], []]
    return [*chance.choice(before), lost, *chance.choice(rest)]


def _by_itself(chance: random.Random) -> Sequence[str]:
    """A monitor makes runs by itself, before and after somebody and something else did."""
    who = chance.choice(("here", "there"))
    monitor = f"{who}: monitor --for {chance.choice((2, 7))}s --auto-unfence"
    monitor += chance.choice((" --auto-reinstate", ""))
    monitor += chance.choice((" --auto-quarantine", ""))
    site = chance.choice(("SERVING", "SERVING", "WAITING"))
    between = [
        [],
        ["work 5"],
        [f"here: fence {site} --yes"],
        ["cut WAITING refuse"],
        ["there: swapover --to WAITING --yes"],
    ]
    last, dies = (
        chance.choice(("start", "well")),
        f"{who} dies after {chance.randrange(1, 6)}{monitor.removeprefix(who)}",
    )
    again = [[monitor], [dies, monitor], [monitor.replace(who, "there" if who == "here" else "here"), monitor]]
    killed = [f"kill {site}", *chance.choice(([], ["kill WAITING"]))]
    return [monitor, *chance.choice(between), *killed, last, *chance.choice(again)]


def _accepting(chance: random.Random, figures: Sequence[str]) -> str:
    figure = chance.choice(figures)
    return f"--accept-loss {figure} --accept-duplicates {figure}"


def _trouble(topology: str, chance: random.Random) -> Sequence[str]:
    some = [f"kill {site}" for site in ("SERVING", "WAITING")] + ["start"]
    if topology not in LINKLESS:
        modes = ("refuse", "hang", "accept")
        some += [f"cut {site} {chance.choice(modes)}" for site in ("SERVING", "WAITING")] + ["heal", "heal"]
    if topology == BROKERSYNC:
        some += [
            "agent stop",
            "agent start",
            "here: sync --for 1s",
            "here: sync --settle --site WAITING --yes --reason because",
        ]
    return [chance.choice(some)]


def _whoever(chance: random.Random) -> str:
    who = chance.choices(("here", "there"), (3, 1))[0]
    manner = chance.choices(("", "dies", "killed"), (20, 6, 1))[0]
    if manner == "dies":
        return f"{who} dies {chance.choice(('before', 'after'))} {chance.randrange(1, 9)}: "
    if manner == "killed":
        return f"{who} killed {chance.randrange(400, 1500)}: "
    return f"{who}: "


def _typed(topology: str, chance: random.Random) -> str:
    site, target = (chance.choice(("SERVING", "WAITING")) for _ in range(2))
    moves = [
        "swapover --to WAITING --yes --timeout 2s",
        "swapover --to WAITING --yes --timeout 2s",
        f"swapover --to {target} --yes --timeout 2s --cut-in-flight",
        f"failover --to {target} --yes {_accepting(chance, ANY)}",
        f"failback --to {target} --yes --timeout 2s",
    ]
    steps = [
        "status",
        f"validate --to {target}",
        f"swapover --to {target} --dry-run",
        f"reinstate {site} --yes --timeout 2s",
        f"quiesce {site} --yes",
        f"fence {site} --yes",
        f"drain --to {target} --yes --timeout 2s",
        f"verify --to {target}",
        f"activate {site} --yes",
        f"unfence {site} --yes",
        "resume --yes",
        "abort --yes",
        f"escalate --yes {_accepting(chance, ANY)} --reason because",
        f"trim {site} --yes",
        f"link restart {site} --yes",
        f"failover --to WAITING --presume-down SERVING --reason because --yes {_accepting(chance, ANY)}",
    ]
    return _whoever(chance) + chance.choice(chance.choice((moves, steps)))


def hurry(patch: pytest.MonkeyPatch) -> None:
    """Nobody waits for long on a twin."""
    prompt(patch)
    impatient(patch, fence_s=2.0, undo_s=4.0, activate_s=2.0, rates_s=0.01, catch_up_s=0.5, quiesce_s=1.0, settle_s=1.0)
    impatient(patch, link_attach_s=1.0, link_lost_s=0.5, link_between_s=1.0, differs_s=0.5, compared_s=3.0)
    impatient(patch, store_starts_s=3.0, store_taken_s=2.0, store_ends_s=3.0)
    impatient(patch, login_s=0.5, flag_s=1.0, last_reading_s=0.4, probe_s=2.0)


@contextmanager
def besieged(stage: Stage, inside: Command, folder: Path) -> Iterator[Siege]:
    folder.mkdir()
    with stage, pytest.MonkeyPatch.context() as patch:
        brief(stage, folder / "runbooks")
        siege = Siege(stage, inside, patch, folder)
        try:
            yield siege
        except Found as found:
            lines = "\n".join(siege.played)
            raise Found(f"{found}\n\nwhat was played, for DR_CTL_SCRIPT:\n{lines}") from found
        finally:
            end_all()


@pytest.mark.parametrize(("topology", "nodes", "seed", "steps"), CASES)
def test_an_adversary_finds_nothing_on_a_twin(
    topology: str, nodes: int, seed: int, steps: int, tmp_path: Path, inside: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    rows = script(topology, seed, steps, nodes)
    if (path := os.environ.get("DR_CTL_SCRIPT")) is not None:
        lines = Path(path).read_text("utf-8").splitlines()
        rows = [line.partition("  #")[0] for line in lines if line.strip()]
    layout = Layout(nodes=nodes, takeover_s=0.5, gap_s=0.2, boots_open=bool(seed % 2))
    twin = PlayedTwin.up(tmp_path / "twin", topology=topology, layout=layout)
    with besieged(twin, inside, tmp_path / "siege") as siege:
        siege.play(rows)


@pytest.mark.broker
@pytest.mark.chaos
@pytest.mark.parametrize(("topology", "seed", "steps"), REAL)
def test_an_adversary_finds_nothing_on_real_brokers(
    topology: str, seed: int, steps: int, tmp_path: Path, inside: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", PATH)
    with besieged(Lab.up(tmp_path / "lab", topology=topology), inside, tmp_path / "siege") as siege:
        siege.play(script(topology, seed, steps))


RATE, WORK_MS = 60, 12.0
KEPT = "dr-ctl.quarantine."  # what a run keeps aside, and says so
MOST_COMMANDS = 16  # that a person types until the service is whole again
COMMAND = re.compile(r"`dr-ctl ([^`]+)`")
LOOKS = ("status", "validate", "explain", "runs", "monitor", "rpo", "verify", "plan", "check", "init", "history", "lab")
WORDS = {"TEXT": "because", "T": "1m", "N": "unknown", "REASON": "because"}
CONFIRMED_S = 1.0  # what a client waits for a receipt
ENDS = ("commit", "abort", "open")  # of a transaction
LINKLESS = (FANOUT, SHARED_STORE)
CLASSIC = (BROKERSYNC, SHARED_STORE)


class Found(AssertionError):
    """What the adversary has found."""


class Client:
    """One connection, which works message by message, with transactions where it is asked to, and notes it in a ledger.
    What is left open stays so until `close`."""

    def __init__(self, site: str, connection: Connection, dialect: Dialect, ledger: Ledger) -> None:
        self._site, self._connection, self._dialect, self._ledger = site, connection, dialect, ledger
        self._receipts = itertools.count(1)
        self._frames: list[Frame] = []

    @classmethod
    def into(cls, stage: Stage, ledger: Ledger) -> Self | None:
        """Whichever site lets it in; None where none does."""
        target = stage.target()
        for site, address in target.sites:
            _, connection = probe(address, target.login, None, timeout_s=0.5)
            if connection is not None:
                return cls(site, connection, target.dialect, ledger)
        return None

    def close(self) -> None:
        self._connection.close(politely=False)

    def send(self, queue: str, count: int, end: str, priority: str) -> None:
        """Send, at once or in a transaction; `open` leaves it open, and then nobody was promised anything."""
        idents = [f"single-{uuid.uuid4().hex[:12]}" for _ in range(count)]
        try:
            inside = self._begun(end)
            for ident in idents:
                self._ledger.attempt(queue, ident)
                headers = {**self._dialect.sent, **inside, "persistent": "true", ID_HEADER: ident, "priority": priority}
                self._confirmed("SEND", {**headers, "destination": self._dialect.queue(queue)}, "x" * 20)
                if not inside:
                    self._noted(Event.SENT, queue, [ident])
            if self._ended(end, inside):
                self._noted(Event.SENT, queue, idents)
        except (ConnectionLost, TimeoutError):
            self._noted(Event.SEND_IN_DOUBT, queue, idents)

    def take(self, queue: str, count: int, end: str) -> None:
        """Take what comes; `hold` acknowledges nothing, `refuse` says that it cannot be worked on."""
        had: list[Frame] = []
        try:
            if self._dialect is ARTEMIS and end in ENDS:
                end = "now"  # it acknowledges at once
            headers = {**self._dialect.subscribing(count * 256), "ack": "client-individual", "id": "s"}
            self._confirmed("SUBSCRIBE", {**headers, "destination": self._dialect.queue(queue)})
            inside = self._begun(end)
            for _ in range(count):
                frame = self._frame(lambda options: options.cmd == "MESSAGE", 0.15)
                if frame is None or end == "hold":
                    break
                had.append(frame)
                command = "NACK" if end == "refuse" else "ACK"
                if end == "now":
                    self._ledger.record(Event.RECEIVED, queue, identify(frame), self._site)
                self._confirmed(command, {**inside, "id": frame.headers["ack"]})
                if end == "now":
                    self._noted(Event.CONSUMED, queue, [identify(frame)])
            if end == "commit":
                self._noted(Event.RECEIVED, queue, map(identify, had))  # the work is done before
            if self._ended(end, inside):
                self._noted(Event.CONSUMED, queue, map(identify, had))
        except (ConnectionLost, TimeoutError):
            return  # the last of them may come again
        if end in ("now", "commit", "abort", "refuse"):
            self.close()

    def _noted(self, event: Event, queue: str, idents: Iterable[str]) -> None:
        for ident in idents:
            self._ledger.record(event, queue, ident, self._site)

    def _begun(self, end: str) -> dict[str, str]:
        if end not in ENDS:
            return {}
        self._confirmed("BEGIN", {"transaction": "t"})
        return {"transaction": "t"}

    def _ended(self, end: str, inside: dict[str, str]) -> bool:
        if inside and end != "open":
            self._confirmed(end.upper(), inside)
        return end == "commit"

    def _confirmed(self, command: str, headers: dict[str, str], body: str = "") -> None:
        receipt = f"r-{next(self._receipts)}"
        self._connection.stomp.send_frame(command, {**headers, "receipt": receipt}, body)
        if self._frame(lambda message: message.headers.get("receipt-id") == receipt, CONFIRMED_S) is None:
            raise TimeoutError(f"no receipt of {command} in time")

    def _frame(self, wanted: Callable[[Frame], bool], within_s: float) -> Frame | None:
        end = boottime_s() + within_s
        while True:
            for frame in self._frames:
                if wanted(frame):
                    self._frames.remove(frame)
                    return frame
            if boottime_s() > end:
                return None
            self._frames += self._connection.receive(0.02)


@dataclass
class Siege:
    """A stage under siege: plays steps, and raises `Found`. `inside` runs the command line in this process."""

    stage: Stage
    inside: Callable[..., Ended]
    patch: pytest.MonkeyPatch
    folder: Path
    watched: bool = True
    played: list[str] = field(default_factory=list)
    commands: int = 0
    ending: bool = False
    may_lose: float = 0
    may_double: float = 0

    def __post_init__(self) -> None:
        self.topology = load(self.stage.settings_path).settings.topology
        # Brokers that keep no documents keep no two operators apart: these have one STATE.
        alone = self.topology.startswith("classic-")
        self.states = {who: self.folder / f"state {'here' if alone else who}" for who in ("here", "there")}
        self.last = "london"
        self.counted: set[str | None] = set()  # failovers, by their runs
        self.excused: set[str] = set()
        self.sent_before: set[str] = set()  # a bound counts what was confirmed when a command began
        self.away: set[str] = set()
        # What is really so; of real brokers nobody can tell it.
        self.twin = self.stage if isinstance(self.stage, PlayedTwin) else None
        self.judge = Judge(self.twin, self.patch) if self.twin is not None else None
        self.patch.setattr(ContinuityBroker, "on_consumer_lost", self._destroyed(ContinuityBroker.on_consumer_lost))
        self.twice = 0
        self.clients: list[Client] = []
        self.frozen: set[str] = set()

    def play(self, steps: Sequence[str]) -> None:
        with ExitStack() as stack:
            self.traffic = stack.enter_context(self.stage.load(RATE, consumers=1, work_ms=WORK_MS))
            if self.watched:
                stack.enter_context(recording(load(self.stage.settings_path), every_s=0.3))
            stack.callback(self._let)
            if self.twin is not None:
                without_agents(self.twin)
            for step in steps:
                self.step(step)
            self.ends()

    def step(self, step: str) -> None:
        self.played.append(step)
        words = self._meant(step)
        if ":" in step:
            at = next(number for number, word in enumerate(words) if word.endswith(":"))
            self._command(" ".join(words[: at + 1]).rstrip(":"), words[at + 1 :])
        else:
            getattr(self, "_" + words[0].replace("-", "_"))(*words[1:])
        self._judged(step)

    # sites

    def serving(self) -> tuple[str, ...]:
        if self.twin is not None:
            return serving(self.twin)
        items = []
        for site in ("london", "paris"):
            try:
                if self.stage.admin(site).served(self.stage.queues):
                    items.append(site)
            except BrokerError:
                continue
        return tuple(items)

    def _meant(self, step: str) -> list[str]:
        now = self.serving()
        if len(now) == 1:
            [self.last] = now
        other = {"london": "paris", "paris": "london"}[self.last]
        return shlex.split(step.replace("SERVING", self.last).replace("WAITING", other))

    def _kill(self, site: str) -> None:
        self.stage.kill(site)
        self.frozen.discard(site)

    def _start(self) -> None:
        for site in ("london", "paris"):
            self.stage.start(site)

    def _takeover(self, site: str) -> None:
        """The active node dies; the other one, which may open a site that waits, is active after a while."""
        if self.twin is None:
            return
        if self.twin.layout.boots_open and site not in self.serving():
            self.may_double = float("inf")
        for host in self.twin.nodes(site).active:
            self.twin.kill(site, node=host.node)

    def _freeze(self, site: str) -> None:
        if site not in self.frozen and self._alive(site):
            self.stage.freeze(site)
            self.frozen.add(site)

    def _sick(self, site: str) -> None:
        if self.twin is not None:
            self.twin.sicken(site)

    def _alive(self, site: str) -> bool:
        return self.twin.host(site).broker.alive if self.twin is not None else self.stage.pid(site) is not None

    def _cut(self, site: str, mode: str = "refuse") -> None:
        if self.topology not in LINKLESS:
            self.stage.cut(site, mode)

    def _heal(self) -> None:
        if self.topology not in LINKLESS:
            self.stage.heal()

    def _faults(self, site: str, seed: str) -> None:
        if self.twin is not None:
            self.twin.host(site).faults = Faults.from_seed(int(seed), count=2)

    def _well(self) -> None:
        """Whatever is broken is repaired, but what commands have left is not."""
        for site in list(self.frozen):
            self.stage.thaw(site)
        self.frozen.clear()
        for site in self.twin.sites if self.twin is not None else ():
            self.twin.host(site).faults.clear()
            self.twin.sicken(site, sick=False)
        self._heal()
        self._start()
        if self.twin is not None:
            until(self._settled)

    def _settled(self) -> bool:
        """Each broker has its active node, the first one where that returns to its place."""
        assert self.twin is not None
        brokers = [self.twin.nodes(site) for site in self.twin.sites]
        return all(
            not broker.is_group or (broker.active and (broker.kind.passive is None or broker.hosts[0] in broker.active))
            for broker in brokers
        )

    def _agent(self, word: str) -> None:
        for broker in self.twin.brokers(BrokerSyncBroker) if self.twin is not None else ():
            if broker.agent is not None:
                with broker.lock:
                    broker.agent.stop() if word == "stop" else broker.agent.start()

    # clients

    def _work(self, count: str) -> None:
        end, wanted = boottime_s() + 0.6, self.traffic.counts().sent + int(count)
        while self.traffic.counts().sent < wanted and boottime_s() < end:
            system().sleep(0.01)

    def _no(self, _: str) -> None:
        self.traffic.pause_producing()

    def _producers(self) -> None:
        self.traffic.resume_producing()

    def _send(self, *words: str) -> None:
        self._worked("send", *words)

    def _take(self, *words: str) -> None:
        self._worked("take", *words)

    def _worked(self, word: str, queue: str, count: str, *more: str) -> None:
        """By a client of its own, which stays, where a site lets it in."""
        if (client := Client.into(self.stage, self.traffic.ledger)) is not None:
            self.clients.append(client)
            getattr(client, word)(queue, int(count), *more)

    def _let(self, _: str = "go") -> None:
        while self.clients:
            self.clients.pop().close()

    def _destroyed(self, on_consumer_lost: Callable[..., None]) -> Callable[..., None]:
        """What a client held that was cut off, the plugin destroys at both sites where both have delivered it."""

        def excused(broker: ContinuityBroker, queue: Queue, held: Sequence[Message]) -> None:
            self.excused |= {held[0].headers[ID_HEADER]} if ID_HEADER in held[0].headers else set()
            on_consumer_lost(broker, queue, held)

        return excused

    def _operator(self) -> None:
        """Somebody throws away what lies in a queue of the site that serves."""
        for site in self.serving()[:1]:
            before = self._awaited()
            try:
                self._purge(site, "orders.in")
            except BrokerError:
                continue
            finally:
                self.excused |= before | self._awaited()

    def _purge(self, site: str, queue: str) -> None:
        admin = self.stage.admin(site)
        if hasattr(admin, "purge"):
            admin.purge(queue)
            return
        of = f'address="{queue}",subcomponent=queues,routing-type="anycast",queue="{queue}"'
        bean = f"{admin._broker},component=addresses,{of}"
        admin._call({"type": "exec", "mbean": bean, "operation": "removeAllMessages()", "arguments": []})

    # commands

    def _command(self, who: str, typed: Sequence[str]) -> Ended | None:
        """`who` may end the process on the way: before or after so many of its requests, or after so many ms; or a site
        loses its active node before such a request."""
        who, *manner = who.split()
        self.patch.setenv("DR_CTL_CONFIG", str(self._settings(who, typed[0])))
        self.patch.setenv("DR_CTL_STATE_DIR", str(self.states[who]))
        self.commands += 1
        if manner and manner[0] == "killed":
            process = Operator(self.stage, self.states[who]).start(*typed)
            system().sleep(int(manner[1]) / 1000)
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()
            return None
        self.sent_before = self._awaited()
        lives = self._lives()
        open_before, both = self.twice_now(), len(self.serving()) == 2
        with self.patch.context() as patch:
            if manner:
                act = partial(self._takeover, manner[1]) if manner[0] == "loses" else die
                Death(int(manner[2]), after=manner[1] == "after", act=act).strike(patch)
            try:
                ended = self.inside(*typed)
            except Died:
                return None
        self.played[-1] += f"  # {' '.join(typed)}: {ended.code} {str(ended.document.get('summary'))[:110]}"
        if typed[0] in ("reinstate", "failback"):
            self.played += [f"  # {finding['id']} {finding['text']}" for finding in ended.document["findings"]]
        self._honest(typed, ended, lives)
        for kind, operation in (("unfenced", "unfence"), ("reinstated", "reinstate")):
            for made in ended.document["data"].get(kind) or ():  # by a monitor itself
                path = self.states[who] / "runs" / made["run"] / "result.json"
                document = json.loads(path.read_bytes())
                own = Ended(document["exit_code"], {key: document[key] for key in {*document} - {"journal"}}, "")
                self.played[-1] += f"; {made['run']}: {own.code} {own.told[:80]}"
                self._honest([operation, made["run"].split("-")[2]], own, lives)
        if self.twice_now() > open_before and not both and self._lives() == lives:
            raise Found(f"both sites were open while `{' '.join(typed)}` ran: {self.judge and self.judge.twice}")
        return ended

    def _settings(self, who: str, command: str) -> Path:
        """A monitor writes a history of its own: another one watches all the time."""
        path = self.stage.settings_path
        if command != "monitor":
            return path
        settings = yaml.safe_load(path.read_text("utf-8"))
        own = path.with_name(f"{who}.yaml")
        own.write_text(yaml.safe_dump({**settings, "history": {"path": f"history {who}", "every": "1s"}}), "utf-8")
        return own

    def twice_now(self) -> int:
        return len(self.judge.twice) if self.judge is not None else 0

    def _lives(self) -> dict[str, object]:
        if self.twin is not None:
            brokers = {site: self.twin.host(site).broker for site in self.twin.sites}
            return {site: (broker.start_ms, broker.alive) for site, broker in brokers.items()}
        return {site: self.stage.pid(site) for site in ("london", "paris")}

    def _honest(self, typed: Sequence[str], ended: Ended, lives: dict[str, object]) -> None:
        """The end that a command tells is what is."""
        if ended.code == 1 or (ended.code == 2 and self.ending):  # not every topology has every command
            raise Found(f"`{' '.join(typed)}` ended {ended.code}: {ended.told}\n{ended.err[-3000:]}")
        name, dry = typed[0], "--dry-run" in typed
        if ended.code in (0, 21) and not dry and name not in LOOKS:
            for item in ended.document["findings"]:
                result = re.findall(r"(\d+) message", item["text"])
                if "are only at" in item["text"]:  # and a person is told where
                    self.may_lose += sum(int(number) for number in result)
                if "come as duplicates" in item["text"].replace("do not come", ""):
                    self.may_double += sum(int(number) for number in result) if result else float("inf")
        if ended.code in (0, 21) and not dry and name in ("failover", "escalate", "resume"):
            self._counted(ended)
        if ended.code == 0 and not dry and name in ("failback", "reinstate"):
            self._returned(ended)
        if lives != self._lives() or dry:
            return  # what a fault killed since is no lie
        now = self.serving()
        wanted = typed[typed.index("--to") + 1] if "--to" in typed else typed[1] if len(typed) > 1 else ""
        lifted = name == "unfence" and "stays closed" in ended.document["summary"]  # pauses, and nothing else
        # A lost site that was not shown to be kept out may serve: the debt says so.
        owed = {row["site"] for row in ended.document["debts"] if row["kind"] == "fence"} if "failover" in name else {}
        if ended.code == 0 and name in ("swapover", "failover", "failback", "activate", "unfence") and not lifted:
            self._is(wanted in now and not {*now} - {wanted, *owed}, typed, ended, now)
        if ended.code == 0 and name == "fence":
            self._is(wanted not in now, typed, ended, now)
        if ended.code == 21 and name in ("swapover", "failover", "failback", "activate"):
            result = "effect not seen" in ended.document["summary"]  # as of a role that stays out
            self._is(wanted in now or result, typed, ended, now)
        if ended.code in (20, 24) and name == "swapover":
            self._is(len(now) == 1, typed, ended, now)
        if name == "status" and ended.code == 0:
            roles = {site: entry["role"] for site, entry in ended.document["data"]["sites"].items()}
            said = {site for site, role in roles.items() if role == "serving"}
            unsure = any(role in ("unknown", "sick") for role in roles.values())
            # A node that takes over opens its listeners; rights may keep clients out behind them, and that is told.
            # Where bridges join two open sites, the one serves where consumers run: that too is told.
            warned = any(finding["severity"] == "error" for finding in ended.document["findings"])
            behind = {site for site in said if warned and self.twin is not None and reached(self.twin, site)}
            least = {*now} & said if warned and said and self.topology == BRIDGES else {*now}
            self._is(least <= said <= {*now, *behind} or unsure, typed, ended, now)

    def _is(self, true: bool, typed: Sequence[str], ended: Ended, now: tuple[str, ...]) -> None:
        if not true:
            raise Found(f"`{' '.join(typed)}` ended {ended.code}, and {now or 'nobody'} serves: {ended.told}")

    def _counted(self, ended: Ended) -> None:
        """A failover lost no more than it said."""
        bounds = ended.document["data"].get("bounds")
        if bounds is None:
            return
        lost, twice = (bounds[name]["at_most"] for name in ("lost", "duplicates"))
        if (run := ended.document["run"]) in self.counted and run is not None:
            return
        self.counted.add(run)
        self.may_lose += float("inf") if lost is None else lost
        self.may_double += float("inf") if twice is None else twice
        if self.twin is not None and lost is not None:
            now = self.serving()
            before = self._awaited()
            remote = set().union(*(self._lying(site) for site in now)) if now else set()
            lacking = (before & self.sent_before & self._awaited()) - remote - self.excused - self.away
            lacking -= self._lying("london", aside=True) | self._lying("paris", aside=True)
            self.away |= lacking
            if now and len(lacking) > lost:
                raise Found(f"a failover said that at most {lost} are lost, and {len(lacking)} are: {ended.told}")

    def _returned(self, ended: Ended) -> None:
        residue = ended.document["data"].get("residue") or {}
        at_most = residue.get("duplicates_at_most", 0)
        self.may_double += float("inf") if at_most is None else at_most

    # the judge

    def _judged(self, step: str) -> None:
        if self.twin is not None:
            before = self._awaited()
            with self.twin.locked():  # or a message that goes from one to the other between two readings is at neither
                remote = self._lying("london") | self._lying("paris")
            gone = (before & self._awaited()) - remote - self.excused
            if gone:
                raise Found(f"after `{step}` {len(gone)} message(s) are at neither site: {sorted(gone)[:5]}")
            if self.twice_now() > self.twice:
                self.twice = self.twice_now()
                self._told_of_two()

    def _told_of_two(self) -> None:
        if len(self.serving()) < 2:
            return
        ended = self._command("here", ["status"])
        roles = [broker["role"] for broker in ended.document["data"]["sites"].values()] if ended is not None else []
        unsure = {*roles} & {"unknown", "sick"}
        if roles and not unsure and not any(finding["severity"] == "error" for finding in ended.document["findings"]):
            raise Found(f"both sites are open, and status does not say so: {ended.told}")

    def _awaited(self) -> set[str]:
        """Messages with a receipt that no client has had."""
        ledger = self.traffic.ledger
        with ledger._lock:
            had = {ident for (_, ident), message in ledger._messages.items() if message.received}
            return {ident for (_, ident), message in ledger._messages.items() if message.sent} - had

    def _lying(self, site: str, *, aside: bool = False, named: str = "") -> set[str]:
        """Messages that a site holds; `aside`: its dead letters, which each site has for itself; of queues that are
        `named` so."""
        assert self.twin is not None
        with self.twin.locked():
            broker = self.twin.host(site).broker
            holders = [broker, *([broker.store] if isinstance(broker, SharedStoreBroker) else [])]
            return {
                message.headers[ID_HEADER]
                for holder in holders
                for queue in holder.queues.values()
                for message in queue.messages.values()
                if ID_HEADER in message.headers and (not aside or "DLQ" in queue.name) and named in queue.name
            }

    # the end

    def ends(self) -> None:
        """Once nothing is broken any more, what `status` and refusals advise leads to one site that serves."""
        self._let()
        self.played.append("well")
        self.ending = True
        self._well()
        self._no("producers")
        tried: dict[tuple[str, ...], int] = {}
        advised: list[tuple[str, list[str]]] = []
        for _ in range(MOST_COMMANDS):
            if self._whole(advised):
                break
            who, typed = self._next(advised, tried)
            serves = self.serving()
            tried[(who, *typed)] = tried.get((who, *typed), 0) + 1
            self.played.append(f"{who}: {shlex.join(typed)}")
            ended = self._command(who, typed)
            self._judged(self.played[-1])
            if self.serving() != serves:
                tried.clear()  # what was refused may be done now
            advised[:] = [(who, words) for words in self._advice(ended)] if ended is not None and ended.code else []
            if ended is not None and ended.code == 13 and "--break-lock" not in typed:
                advised.append((who, [*typed, "--break-lock", "--reason", "because"]))  # whose process is gone
            if ended is not None and ended.code == 11 and typed[0] != "resume":
                accepting = re.findall(r"--accept-(?:loss|duplicates) \w+", str(ended.document["findings"]))
                advised.insert(0, (who, [*typed, *shlex.split(" ".join(accepting))]))
        else:
            raise Found(f"no way out within {MOST_COMMANDS} commands: {self._state()}")
        self._reconciled()

    def _whole(self, advised: list[tuple[str, list[str]]]) -> bool:
        """Say whether one site serves and nothing is owed; else add what is advised."""
        whole = len(self.serving()) == 1
        if self.twin is not None and whole:
            whole = open_at(self.twin, self.serving()[0]) == {*self.twin.queues} and not paused(self.twin)
        for who in {state: who for who, state in reversed(self.states.items())}.values():
            self.played.append(f"{who}: status")
            status = self._command(who, ["status"])
            assert status is not None
            data = status.document["data"]
            if data.get("open_run") or status.document["debts"]:
                whole = False
            ways = sorted(data.get("ways_out", []), key=lambda way: not way["recommended"])
            advised += [(who, self._filled(way["command"].removeprefix("dr-ctl "))) for way in ways]
            advised += [(who, words) for words in self._advice(status)]
        return whole

    def _advice(self, ended: Ended) -> Iterator[list[str]]:
        rows = [*ended.document["findings"], *ended.document["debts"]]
        rows.sort(key=lambda row: row.get("severity") != "error")
        for row in rows:
            for words in COMMAND.findall(str(row.get("remedy"))):
                yield self._filled(words)
        for words in COMMAND.findall(str(ended.document.get("summary"))):
            yield self._filled(words)

    def _filled(self, words: str) -> list[str]:
        if words == "sync":
            return ["sync", "--for", "2s"]  # it would go on for as long as its site serves
        typed = [{**WORDS, "SITE": self.last}.get(word, word) for word in shlex.split(words) if word != "--dry-run"]
        if "--dry-run" in words and "--reason" not in typed:
            typed += ["--reason", "because"]  # what a list is looked at for
        return typed if "--yes" in typed or typed[0] in LOOKS else [*typed, "--yes"]

    def _next(self, advised: list[tuple[str, list[str]]], tried: dict[tuple[str, ...], int]) -> tuple[str, list[str]]:
        for who, typed in advised:
            if typed[0] not in LOOKS and tried.get((who, *typed), 0) < 2:
                return who, typed
        if not self.serving() or any(item for item in tried):
            raise Found(f"nothing is advised that was not tried: {self._state()}; tried {tried}")
        raise Found(f"nothing is advised: {self._state()}")

    def _state(self) -> str:
        ended = self._command("here", ["status"])
        more = ""
        if self.twin is not None:
            more = f"; open at each {[sorted(open_at(self.twin, site)) for site in self.twin.sites]}"
            more += f"; paused {paused(self.twin)}"
        return f"{self.serving()}{more} {ended and ended.told}"

    def _reconciled(self) -> None:
        verdict = self.traffic.stop(drain_s=60 if self.twin is not None else 300)
        awaited, where = self._awaited() - self.excused, {}
        if self.twin is not None:
            remote = {site: self._lying(site) for site in self.twin.sites}
            where = {site: len(awaited & remote[site]) for site in remote}
            letters = [self._lying(site, aside=True) for site in remote if self.topology in CLASSIC]
            awaited -= set().union(*letters, *(self._lying(site, named=KEPT) for site in remote))
        twice = {ident for _, ident in verdict.duplicates}
        for idents, most, what in ((awaited, self.may_lose, "were lost"), (twice, self.may_double, "came twice")):
            if len(idents) > most:
                text = f"{verdict.summary} {sorted(idents)[:5]} {where}"
                raise Found(f"{len(idents)} {what}, at most {most} were said: {text}")
