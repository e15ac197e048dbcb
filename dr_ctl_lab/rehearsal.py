"""`rehearse --on twin`: moves of the caller's installation on simulated brokers, with faults from a seed.

The twin has the installation's sites, pairs, queues, depths, runbooks and settings; hooks are not run. The clients'
ledger and the brokers' listeners judge every variation.
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
from dr_ctl.engine.context import restored_handlers
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

MAX_DEPTH: Final = 500
"""The largest number of messages that is put into a queue."""
MAX_QUEUES: Final = 50
LOADED: Final = 2
"""The number of queues that clients use; the others get the messages of the reading."""
RATE: Final = 100.0
SENT: Final = 20  # messages before a variation begins
DRAIN_S: Final = 20.0
BACK_S: Final = 10.0
RETRY_S: Final = 1.0
OWN_QUEUES: Final = ("DLQ", "ExpiryQueue")
DEFAULT_QUEUES: Final = ("orders.in", "orders.out")
SCENES: Final = ("swapover", "swapover with faults", "failover", "failover with faults", "failback")
# Simulated brokers answer in milliseconds.
TIMEOUTS: Final = replace(
    Timeouts(), fence_s=2.0, undo_s=4.0, activate_s=4.0, rates_s=0.01, catch_up_s=5.0, quiesce_s=1.0, settle_s=1.0,
    link_attach_s=2.0, link_lost_s=0.5, link_between_s=1.0, login_s=1.0, flag_s=1.0, last_reading_s=0.5, probe_s=3.0,
    store_starts_s=5.0, store_taken_s=4.0, store_ends_s=5.0,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Template:
    """The installation that the twin imitates; `notes` name differences."""

    settings: Mapping[str, Any]
    topology: str
    sites: tuple[str, str]
    pairs: Sequence[str]
    depths: Mapping[str, int]
    notes: Sequence[str] = ()

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(self.depths) or DEFAULT_QUEUES


@dataclass(frozen=True, slots=True)
class End:
    """The end of one command."""

    command: str
    exit_code: int
    summary: str


@dataclass(slots=True)
class Variation:
    """One variation: the ends of its commands, and errors that were found."""

    seed: int
    scene: str
    ends: list[End] = field(default_factory=list, metadata=key("commands"))
    outage_s: float | None = None
    wrong: list[str] = field(default_factory=list)


def rehearse(caller: Caller, *, variations: int, seed: int) -> Result:
    """Run the variations; exit 0 without errors, 11 with some."""
    template = _template(caller)
    began, results = boottime_s(), list[Variation]()
    for number in range(variations):
        variation = _rehearsed(template, seed + number)
        results.append(variation)
        word = "; ".join(variation.wrong) or "PASS"
        caller.say(f"{number + 1}/{variations} seed {variation.seed}, {variation.scene}: {_codes(variation)}: {word}")
    wrong = [result for result in results if result.wrong]
    outages = sorted(result.outage_s for result in results if result.outage_s is not None)
    findings: list[Finding] = [
        found("DR-REHEARSE-003", seed=result.seed, scene=result.scene, wrong=brief(result.wrong)) for result in wrong
    ]
    evidence = caller.state() / "rehearsals" / f"{system().now():%Y%m%dT%H%M%SZ}-twin.json"
    ends = Counter(end.exit_code for result in results for end in result.ends)
    data = TwinData(
        system().now(),
        *(template.topology, template.sites, template.depths, template.notes, results),
        ends={str(code): count for code, count in sorted(ends.items())},
        outage_s={"median": outages[len(outages) // 2], "most": outages[-1]} if outages else None,
        took_s=boottime_s() - began,
        evidence=evidence,
    )
    evidence.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write(evidence, document(data))
    longest = f"; clients were out for {outages[-1]:.2f} s at most" if outages else ""
    summary = f"{len(results)} variation(s) on a twin, {len(wrong)} judged badly{longest}; evidence: {evidence}"
    return Result(
        ExitCode.LOSS_REFUSED if wrong else ExitCode.OK, summary, findings, data, text="\n".join(template.notes)
    )


def _codes(variation: Variation) -> str:
    return ", ".join(f"{end.command.split()[0]} {end.exit_code}" for end in variation.ends)


def _template(caller: Caller) -> Template:
    """Make the template, with queues and depths from a reading, where brokers answer."""
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
                        continue  # the twin creates its own
                    depths[name] = max(depths.get(name, 0), min(depth or 0, MAX_DEPTH))
            silent = [f"{broker.site}/{broker.pair}" for broker in snapshot.brokers if broker.silent is not None]
        except DrCtlError as error:
            silent = [str(error)]
    if not depths:
        notes.append(f"no broker told its queues ({brief(silent)}): rehearsed with {' and '.join(DEFAULT_QUEUES)}")
    if len(depths) > MAX_QUEUES:
        notes.append(f"{MAX_QUEUES} of {len(depths)} queues are rehearsed with")
        depths = dict([*depths.items()][:MAX_QUEUES])
    deep = [name for name, depth in depths.items() if depth == MAX_DEPTH]
    notes += [f"{brief(deep)}: {MAX_DEPTH} messages stand for all that lie there"] if deep else []
    twin_settings: dict[str, Any] = {
        "name": settings.name,
        "drain": {"timeout": "10s", "poll": "20ms", "stable": settings.drain.stable, "stall": "3s"},
        "runbooks": str(folder(installation).resolve()),
        "hooks": {name: {"run": [sys.executable, "-c", "pass"]} for name in settings.hooks},
    }
    notes += [f"hooks are not carried out: {brief(list(settings.hooks))}"] if settings.hooks else []
    return Template(twin_settings, settings.topology, (first, second), pairs, depths, notes)


def _rehearsed(template: Template, seed: int) -> Variation:
    scene = SCENES[seed % len(SCENES)]
    variation = Variation(seed, scene)
    with (
        tempfile.TemporaryDirectory(prefix="dr-ctl-rehearsal-") as home,
        simulated(),
        _twin(template, Path(home)) as twin,
    ):
        play = _Play(twin, Path(home) / "state", variation)
        with (
            twin.load(RATE, queues=template.queues[:LOADED], work_ms=1) as traffic,
            recording(load(twin.settings_path), every_s=0.2),
        ):
            traffic.wait_for(SENT)
            play.scene(faults="faults" in scene, operation=scene.split()[0])
            with contextlib.suppress(TimeoutError) if variation.wrong else contextlib.nullcontext():
                traffic.wait_for(traffic.counts().sent + SENT)
            verdict = traffic.stop(drain_s=DRAIN_S)
        if len(verdict.lost) > (play.may_lose or 0):
            variation.wrong.append(f"{len(verdict.lost)} message(s) lost, at most {play.may_lose or 0} were announced")
        if len(verdict.duplicates) > (play.may_double or 0):
            duplicates = len(verdict.duplicates)
            variation.wrong.append(f"{duplicates} duplicate(s), at most {play.may_double or 0} were announced")
    return variation


@contextlib.contextmanager
def _twin(template: Template, home: Path) -> Iterator[PlayedTwin]:
    """A twin like the installation, with as many messages; the first site serves."""
    up = PlayedTwin.up(
        home / "twin",
        sites=template.sites,
        serving=template.sites[0],
        queues=template.queues,
        pairs=template.pairs,
        topology=template.topology,
    )
    with up as twin:
        document = yaml.safe_load(twin.settings_path.read_text(encoding="utf-8"))
        twin.settings_path.write_text(yaml.safe_dump({**document, **template.settings}), encoding="utf-8")
        for name in template.queues[LOADED:]:
            _put(twin, name, template.depths[name])
        yield twin


def _put(twin: PlayedTwin, queue: str, count: int) -> None:
    """Send messages as producers would: with fan-out to both sites."""
    brokers = [twin.host(twin.sites[0]).broker]
    if isinstance(brokers[0], FanoutBroker):
        brokers.append(twin.host(twin.sites[1]).broker)
    with twin.locked():
        for number in range(count):
            ident = str(uuid4())
            for broker in brokers:
                headers = {"n": str(number), ID_HEADER: ident}
                body = f"message {number}".encode()
                message = Message(
                    broker.next_number(), queue, body, text=True, headers=headers, timestamp_ms=broker.now_ms()
                )
                broker.route(message)


class _Play:
    """Runs the commands of one variation, and judges the result of each."""

    def __init__(self, twin: PlayedTwin, state: Path, variation: Variation) -> None:
        self._twin, self._state, self._variation = twin, state, variation
        self._source, self._target = twin.sites
        self.may_lose: float | None = 0
        self.may_double: float | None = 0

    def scene(self, *, faults: bool, operation: str) -> None:
        if operation == "swapover":
            self._add_faults(faults, *self._twin.sites)
            self._run_command("swapover", "--to", self._target, "--yes")
        else:
            self._twin.kill(self._source)
            self._add_faults(faults, self._target)
            ended = self._run_command("failover", "--to", self._target, "--yes", *UNKNOWN)
            if ended["exit_code"] == ExitCode.LOSS_REFUSED:  # the bound is known
                ended = self._run_command(
                    "failover", "--to", self._target, "--yes", *_accepting_options(ended["data"]["bounds"])
                )
            self._note_bounds(ended)
        self._repair()
        if operation == "failback":
            self._run_command("failback", "--to", self._source, "--yes")
            self._repair()
        self._make_served()

    def _add_faults(self, faults: bool, *sites: str) -> None:
        for number, site in enumerate(sites):
            for pair in self._twin.pairs if faults else ():
                self._twin.host(site, pair).faults = Faults.from_seed(2 * self._variation.seed + number, count=2)

    def _note_bounds(self, ended: Mapping[str, Any]) -> None:
        bounds = ended.get("data", {}).get("bounds") or {}
        lost, duplicates = (bounds.get(key, {}).get("at_most") for key in ("lost", "duplicates"))
        self.may_lose = float("inf") if lost is None else lost
        self.may_double = float("inf") if duplicates is None else duplicates

    def _repair(self) -> None:
        """Clear all faults, and start brokers that died."""
        for site in self._twin.sites:
            for pair in self._twin.pairs:
                self._twin.host(site, pair).faults.clear()
        until = boottime_s() + BACK_S
        for site in self._twin.sites:
            self._twin.start(site)
            while not self._twin.host(site).broker.alive and boottime_s() < until:
                system().sleep(0.01)

    def _make_served(self) -> None:
        """Where no site serves after the repair, run the commands that an operator would type until one serves."""
        commands = (("resume",), ("abort",), ("unfence", self._source), ("activate", self._target))
        until = boottime_s() + BACK_S
        while boottime_s() < until:
            for words in commands:
                if self.serving():
                    return
                self._run_command(*words, "--yes")
            system().sleep(RETRY_S)
        self._variation.wrong.append("no command made a site serve again")

    def serving(self) -> list[str]:
        """The sites that serve clients, according to their brokers."""
        if self._twin.kind.topology not in LABS:  # there is no management client for its console
            brokers = {site: self._twin.host(site).broker for site in self._twin.sites}
            return [
                site
                for site, broker in brokers.items()
                if broker.alive and broker.acceptors[broker.clients_listener].started
            ]
        sites = []
        for site in self._twin.sites:
            try:
                if self._twin.admin(site).served(self._twin.queues):
                    sites.append(site)
            except BrokerError:
                continue
        return sites

    def _run_command(self, *words: str) -> Mapping[str, Any]:
        """Run a command in this process; return its document."""
        out, quiet = io.StringIO(), io.StringIO()
        options = ("--config", str(self._twin.settings_path), "--state-dir", str(self._state), "--json", "--quiet")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(quiet), restored_handlers():
            code = run([*words, *options], Session(timeouts=TIMEOUTS))
        envelope: Mapping[str, Any] = json.loads(out.getvalue())
        self._variation.ends.append(End(" ".join(words), code, str(envelope["summary"])))
        outage = envelope["data"].get("outage_s")
        if outage is not None:
            self._variation.outage_s = max(outage, self._variation.outage_s or 0.0)
        self._judge(words, code, envelope)
        return envelope

    def _judge(self, words: Sequence[str], code: int, envelope: Mapping[str, Any]) -> None:
        serving = self.serving()
        if len(serving) > 1 and words[0] in ("swapover", "failover", "failback"):
            self._variation.wrong.append(f"split brain: both sites let clients in after `{' '.join(words)}`")
        if code == ExitCode.INTERNAL:
            self._variation.wrong.append(f"a defect: {envelope['summary']}")
        rows = [pair["serving"] for pair in envelope["data"].get("pairs", ())]
        if code == ExitCode.OK and words[0] in ("swapover", "failover") and rows and self._target not in rows:
            self._variation.wrong.append(f"{words[0]} ended 0, and {self._target} does not serve")


UNKNOWN: Final = ("--accept-loss", "unknown", "--accept-duplicates", "unknown")
ANY_FIGURE: Final = ("--accept-loss", "1000000000", "--accept-duplicates", "1000000000")


def _accepting_options(bounds: Mapping[str, Any]) -> list[str]:
    """Options that accept any loss and any duplicates, known or unknown."""
    known = [bounds[key]["at_most"] is not None for key in ("lost", "duplicates")]
    options = (ANY_FIGURE[:2], ANY_FIGURE[2:]), (UNKNOWN[:2], UNKNOWN[2:])
    return [word for at, is_known in enumerate(known) for word in options[not is_known][at]]
