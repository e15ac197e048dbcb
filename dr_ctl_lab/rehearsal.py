"""`rehearse --on twin`: moves of the caller's own installation on simulated brokers, with faults from a seed.

The twin has the installation's sites, pairs and queues, as many messages as lie there now, and its own runbooks and
settings; hooks are not carried out. Every variation is judged by the clients' ledger and by the brokers' listeners.
"""

import contextlib
import io
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import yaml

from dr_ctl.application.caller import Caller
from dr_ctl.application.installation import folder
from dr_ctl.application.rehearsing import TwinData
from dr_ctl.application.result import Result
from dr_ctl.cli.app import run
from dr_ctl.cli.session import Session
from dr_ctl.core.document import document, key
from dr_ctl.core.errors import BrokerError, DrCtlError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, Finding, brief
from dr_ctl.core.system import boottime_s, system
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.context import handlers_kept
from dr_ctl.engine.runs import write
from dr_ctl.settings.loader import load
from dr_ctl.topologies import registry
from dr_ctl.topologies.registry import Snapshot
from dr_ctl_lab.lab.kinds import KINDS as LABS
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.recording import recording
from dr_ctl_lab.simulation.system import simulated
from dr_ctl_lab.twin.classic.fanout.broker import ID_HEADER, FanoutBroker
from dr_ctl_lab.twin.faults import Faults
from dr_ctl_lab.twin.messages import Message

MOST_LYING: Final = 500
"""Messages that are put into a queue at most: deeper queues are rehearsed with so many."""
MOST_QUEUES: Final = 50
WORKED_ON: Final = 2
"""Queues that clients send to and receive from; in the others lie the messages of the reading."""
RATE: Final = 100.0
SENT: Final = 20  # messages before a variation begins
DRAIN_S: Final = 20.0
BACK_S: Final = 10.0
AGAIN_S: Final = 1.0
OWN_QUEUES: Final = ("DLQ", "ExpiryQueue")
USUAL: Final = ("orders.in", "orders.out")
SCENES: Final = ("swapover", "swapover with faults", "failover", "failover with faults", "failback")
# A simulated broker answers in milliseconds: nobody waits for one as for a real one.
PATIENCE: Final = replace(
    Timeouts(), fence_s=2.0, undo_s=4.0, activate_s=4.0, rates_s=0.01, catch_up_s=5.0, quiesce_s=1.0, settle_s=1.0,
    link_attach_s=2.0, link_lost_s=0.5, link_between_s=1.0, login_s=1.0, flag_s=1.0, last_reading_s=0.5, probe_s=3.0,
    store_starts_s=5.0, store_taken_s=4.0, store_ends_s=5.0,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Like:
    """The installation that a twin is made like, and what of it was not known."""

    settings: Mapping[str, Any]
    topology: str
    sites: tuple[str, str]
    pairs: Sequence[str]
    depths: Mapping[str, int]
    notes: Sequence[str] = ()

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(self.depths) or USUAL


@dataclass(frozen=True, slots=True)
class End:
    """How one command ended."""

    command: str
    exit_code: int
    summary: str


@dataclass(slots=True)
class Played:
    """One variation: what was typed, how each command ended, and what was wrong with that."""

    seed: int
    scene: str
    ends: list[End] = field(default_factory=list, metadata=key("commands"))
    outage_s: float | None = None
    wrong: list[str] = field(default_factory=list)


def rehearse(caller: Caller, *, variations: int, seed: int) -> Result:
    """Play them one after the other; 0 where nothing was wrong, 11 where the judge found something."""
    like = _like(caller)
    began, played = boottime_s(), list[Played]()
    for number in range(variations):
        variation = _variation(like, seed + number)
        played.append(variation)
        word = "; ".join(variation.wrong) or "PASS"
        caller.say(f"{number + 1}/{variations} seed {variation.seed}, {variation.scene}: {_codes(variation)}: {word}")
    wrong = [step for step in played if step.wrong]
    outages = sorted(step.outage_s for step in played if step.outage_s is not None)
    findings: list[Finding] = [
        found("DR-REHEARSE-003", seed=finding.seed, scene=finding.scene, wrong=brief(finding.wrong))
        for finding in wrong
    ]
    evidence = caller.state() / "rehearsals" / f"{system().now():%Y%m%dT%H%M%SZ}-twin.json"
    ends = Counter(end.exit_code for step in played for end in step.ends)
    data = TwinData(
        system().now(),
        *(like.topology, like.sites, like.depths, like.notes, played),
        ends={str(code): count for code, count in sorted(ends.items())},
        outage_s={"median": outages[len(outages) // 2], "most": outages[-1]} if outages else None,
        took_s=boottime_s() - began,
        evidence=evidence,
    )
    evidence.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write(evidence, document(data))
    longest = f"; clients were out for {outages[-1]:.2f} s at most" if outages else ""
    summary = f"{len(played)} variation(s) on a twin, {len(wrong)} judged badly{longest}; evidence: {evidence}"
    return Result(ExitCode.LOSS_REFUSED if wrong else ExitCode.OK, summary, findings, data, text="\n".join(like.notes))


def _codes(played: Played) -> str:
    return ", ".join(f"{end.command.split()[0]} {end.exit_code}" for end in played.ends)


def _like(caller: Caller) -> Like:
    """Names from the settings; queues and depths from a reading, where the brokers answer."""
    installation = caller.installation()
    settings = installation.settings
    first, second = settings.sites
    pairs = [broker.name for broker in settings.sites[first].brokers]
    topology = registry.opened(installation, caller.timeouts, caller.runs().documents)
    depths, notes = dict[str, int](), []
    with contextlib.closing(topology):
        try:
            snapshot: Snapshot = topology.read()
            for broker in snapshot.brokers:
                for name, depth in broker.depths.items():
                    if name in OWN_QUEUES or name.startswith("ActiveMQ."):
                        continue  # a twin has its own dead letters
                    depths[name] = max(depths.get(name, 0), min(depth or 0, MOST_LYING))
            silent = [f"{broker.site}/{broker.pair}" for broker in snapshot.brokers if broker.silent is not None]
        except DrCtlError as error:
            silent = [str(error)]
    if not depths:
        notes.append(f"no broker told its queues ({brief(silent)}): rehearsed with {' and '.join(USUAL)}")
    if len(depths) > MOST_QUEUES:
        notes.append(f"{MOST_QUEUES} of {len(depths)} queues are rehearsed with")
        depths = dict([*depths.items()][:MOST_QUEUES])
    deep = [name for name, depth in depths.items() if depth == MOST_LYING]
    notes += [f"{brief(deep)}: {MOST_LYING} messages stand for all that lie there"] if deep else []
    taken: dict[str, Any] = {
        "name": settings.name,
        "drain": {"timeout": "10s", "poll": "20ms", "stable": settings.drain.stable, "stall": "3s"},
        "runbooks": str(folder(installation).resolve()),
        "hooks": {name: {"run": [sys.executable, "-c", "pass"]} for name in settings.hooks},
    }
    notes += [f"hooks are not carried out: {brief(list(settings.hooks))}"] if settings.hooks else []
    return Like(taken, settings.topology, (first, second), pairs, depths, notes)


def _variation(like: Like, seed: int) -> Played:
    scene = SCENES[seed % len(SCENES)]
    played = Played(seed, scene)
    with tempfile.TemporaryDirectory(prefix="dr-ctl-rehearsal-") as home, simulated(), _twin(like, Path(home)) as twin:
        play = _Play(twin, Path(home) / "state", played)
        with (
            twin.load(RATE, queues=like.queues[:WORKED_ON], work_ms=1) as traffic,
            recording(load(twin.settings_path), every_s=0.2),
        ):
            traffic.wait_for(SENT)
            play.scene(faults="faults" in scene, operation=scene.split()[0])
            with contextlib.suppress(TimeoutError) if played.wrong else contextlib.nullcontext():
                traffic.wait_for(traffic.counts().sent + SENT)
            verdict = traffic.stop(drain_s=DRAIN_S)
        if len(verdict.lost) > (play.may_lose or 0):
            played.wrong.append(f"{len(verdict.lost)} message(s) lost, at most {play.may_lose or 0} were announced")
        if len(verdict.duplicates) > (play.may_double or 0):
            duplicates = len(verdict.duplicates)
            played.wrong.append(f"{duplicates} duplicate(s), at most {play.may_double or 0} were announced")
    return played


@contextlib.contextmanager
def _twin(like: Like, home: Path) -> Iterator[PlayedTwin]:
    """Brokers like the installation's, with as many messages, the first site serving."""
    up = PlayedTwin.up(
        home / "twin",
        sites=like.sites,
        serving=like.sites[0],
        queues=like.queues,
        pairs=like.pairs,
        topology=like.topology,
    )
    with up as twin:
        document = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
        twin.settings_path.write_text(yaml.safe_dump({**document, **like.settings}), encoding="utf-8")
        for name in like.queues[WORKED_ON:]:
            _put(twin, name, like.depths[name])
        yield twin


def _put(twin: PlayedTwin, queue: str, count: int) -> None:
    """Messages as producers send them: to both sites where producers write to both."""
    brokers = [twin.host(twin.sites[0]).broker]
    if isinstance(brokers[0], FanoutBroker):
        brokers.append(twin.host(twin.sites[1]).broker)
    with twin.locked():
        for number in range(count):
            given = str(uuid4())
            for broker in brokers:
                headers = {"n": str(number), ID_HEADER: given}
                body = f"message {number}".encode()
                message = Message(
                    broker.next_number(), queue, body, text=True, headers=headers, timestamp_ms=broker.now_ms()
                )
                broker.route(message)


class _Play:
    """Types the commands of one variation, and judges where they leave the sites."""

    def __init__(self, twin: PlayedTwin, state: Path, played: Played) -> None:
        self._twin, self._state, self._played = twin, state, played
        self._here, self._there = twin.sites
        self.may_lose: float | None = 0
        self.may_double: float | None = 0

    def scene(self, *, faults: bool, operation: str) -> None:
        if operation == "swapover":
            self._faulty(faults, *self._twin.sites)
            self._type("swapover", "--to", self._there, "--yes")
        else:
            self._twin.kill(self._here)
            self._faulty(faults, self._there)
            ended = self._type("failover", "--to", self._there, "--yes", *UNKNOWN)
            if ended["exit_code"] == ExitCode.LOSS_REFUSED:  # it is known
                ended = self._type("failover", "--to", self._there, "--yes", *_accepting(ended["data"]["bounds"]))
            self._announced(ended)
        self._well()
        if operation == "failback":
            self._type("failback", "--to", self._here, "--yes")
            self._well()
        self._until_served()

    def _faulty(self, faults: bool, *sites: str) -> None:
        for number, site in enumerate(sites):
            for pair in self._twin.pairs if faults else ():
                self._twin.host(site, pair).faults = Faults.from_seed(2 * self._played.seed + number, count=2)

    def _announced(self, ended: Mapping[str, Any]) -> None:
        bounds = ended.get("data", {}).get("bounds") or {}
        lost, duplicates = (bounds.get(key, {}).get("at_most") for key in ("lost", "duplicates"))
        self.may_lose = float("inf") if lost is None else lost
        self.may_double = float("inf") if duplicates is None else duplicates

    def _well(self) -> None:
        """What was broken is repaired; brokers that died are started."""
        for site in self._twin.sites:
            for pair in self._twin.pairs:
                self._twin.host(site, pair).faults.clear()
        until = boottime_s() + BACK_S
        for site in self._twin.sites:
            self._twin.start(site)
            while not self._twin.host(site).broker.alive and boottime_s() < until:
                system().sleep(0.01)

    def _until_served(self) -> None:
        """Where nobody serves after all is repaired, what an operator would type has to help, once the links have
        shipped what a site holds alone."""
        ways = (("resume",), ("abort",), ("unfence", self._here), ("activate", self._there))
        until = boottime_s() + BACK_S
        while boottime_s() < until:
            for words in ways:
                if self.serving():
                    return
                self._type(*words, "--yes")
            system().sleep(AGAIN_S)
        self._played.wrong.append("no command made a site serve again")

    def serving(self) -> list[str]:
        """The sites that let clients in and let them work, as their brokers show it."""
        if self._twin.kind.topology not in LABS:  # nobody but the twin itself knows its console
            brokers = {site: self._twin.host(site).broker for site in self._twin.sites}
            return [
                site
                for site, broker in brokers.items()
                if broker.alive and broker.acceptors[broker.clients_listener].started
            ]
        items = []
        for site in self._twin.sites:
            try:
                if self._twin.admin(site).served(self._twin.queues):
                    items.append(site)
            except BrokerError:
                continue
        return items

    def _type(self, *words: str) -> Mapping[str, Any]:
        """The command as it is typed, in this process."""
        out, quiet = io.StringIO(), io.StringIO()
        options = ("--config", str(self._twin.settings_path), "--state-dir", str(self._state), "--json", "--quiet")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(quiet), handlers_kept():
            code = run([*words, *options], Session(timeouts=PATIENCE))
        envelope: Mapping[str, Any] = json.loads(out.getvalue())
        self._played.ends.append(End(" ".join(words), code, str(envelope["summary"])))
        outage = envelope["data"].get("outage_s")
        if outage is not None:
            self._played.outage_s = max(outage, self._played.outage_s or 0.0)
        self._judged(words, code, envelope)
        return envelope

    def _judged(self, words: Sequence[str], code: int, envelope: Mapping[str, Any]) -> None:
        serving = self.serving()
        if len(serving) > 1 and words[0] in ("swapover", "failover", "failback"):
            self._played.wrong.append(f"split brain: both sites let clients in after `{' '.join(words)}`")
        if code == ExitCode.INTERNAL:
            self._played.wrong.append(f"a defect: {envelope['summary']}")
        rows = [pair["serving"] for pair in envelope["data"].get("pairs", ())]
        if code == ExitCode.OK and words[0] in ("swapover", "failover") and rows and self._there not in rows:
            self._played.wrong.append(f"{words[0]} ended 0, and {self._there} does not serve")


UNKNOWN: Final = ("--accept-loss", "unknown", "--accept-duplicates", "unknown")
ANY_FIGURE: Final = ("--accept-loss", "1000000000", "--accept-duplicates", "1000000000")


def _accepting(bounds: Mapping[str, Any]) -> list[str]:
    """What accepts any loss and any duplicates, of which one may be known and the other not."""
    known = [bounds[key]["at_most"] is not None for key in ("lost", "duplicates")]
    options = (ANY_FIGURE[:2], ANY_FIGURE[2:]), (UNKNOWN[:2], UNKNOWN[2:])
    return [word for at, is_known in enumerate(known) for word in options[not is_known][at]]
