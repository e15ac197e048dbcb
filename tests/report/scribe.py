"""Writes run directories as real runs do, through the journal itself, on a clock that the test sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dr_ctl.core.document import document
from dr_ctl.core.model import Finding, Json, Severity
from dr_ctl.core.system import ThisMachine, running_on
from dr_ctl.engine.journal import Journal, StepEvent
from dr_ctl.engine.plan import Call, Goal, Plan, PlannedStep, Spec
from dr_ctl.engine.runs import RunFiles, write

NAME = "20261121T020000Z-swapover-paris-7f3a"
NASTY = 'orders.<script>alert("ü")</script>&\'Größe'
VERBS = (
    *("observe", "check", "estimate", "catch-up", "quiesce", "fence", "drain", "verify"),
    *("point-of-no-return", "activate", "probe"),
)
_SITES = {"quiesce": "london", "fence": "london", "catch-up": "london", "drain": "paris", "verify": "paris"}
_SITES |= {"activate": "paris", "probe": "paris"}


ABOUT: dict[str, Json] = {
    "name": "orders",
    "topology": "artemis-mirror",
    "settings": {"file": "dr-ctl.yaml", "sha256": "5e" * 32},
    "brokers": {"london": ["orders-1 at https://london-1:8161"], "paris": ["orders-1 at https://paris-1:8161"]},
    "objectives": {"recovery_s": 120.0, "lost": 0, "duplicates": None},
}
ADA: dict[str, Json] = {
    "user": "ada",
    "host": "ops-1",
    "version": "0.1.0",
    "command": "dr-ctl swapover --to paris --yes --reason CHG-4711",
    "about": ABOUT,
    "lock": {"epoch": 7, "at": ["london", "paris"], "broken": [], "reason": None},
}
BOB: dict[str, Json] = {**ADA, "user": "bob", "host": "ops-2", "command": "dr-ctl abort --yes"}


def call(about: str, site: str = "london", **more: Any) -> Call:
    bean = 'org.apache.activemq.artemis:broker="london",component=acceptors,name="clients"'
    request: dict[str, Json] = {"bean": bean, "operation": "stop()", "arguments": []}
    return Call(site, "orders-1", Goal.CLOSE, "clients", request, about, **more)


def flows(outflow: int, pending: int = 0, *, attached: bool = True) -> dict[str, Json]:
    return {
        "london": {"outflow": outflow, "pending": 0, "attached": attached},
        "paris": {"outflow": 0, "pending": pending, "attached": True},
    }


def plan(first: int = 1, **more: Any) -> Plan:
    steps = tuple(
        PlannedStep(number, verb, _SITES.get(verb, ""), f"about {verb}", undoable=number - first < 8)
        for number, verb in enumerate(VERBS, start=first)
    )
    result = Plan(
        spec=Spec("swapover", "paris", reason="CHG-4711"),
        source="london",
        steps=steps,
        findings=(Finding("DR-TLS-001", Severity.WARNING, "certificates are not verified", "Set `tls.ca`."),),
        baseline={},
        not_replicated=("temporary queues",),
        cannot_know=("whether clients reconnect",),
    )
    return replace(result, **more)


class Clock(ThisMachine):
    at: datetime

    def now(self) -> datetime:
        return self.at


class StampedJournal(Journal):
    """A journal by a clock of its own: what else the test runs goes by another."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        super().__init__(path)

    def _append(self, *rows: Any, **how: Any) -> int:
        with running_on(self.clock):
            return super()._append(*rows, **how)


@dataclass
class Scribe:
    """One run under `folder`. Each method writes what the executor would; `let` is the only passing of time."""

    folder: Path
    at: datetime = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)
    plan: Plan = field(default_factory=plan)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.files = RunFiles(NAME, self.folder)
        self.journal = StampedJournal(self.files.journal)
        self.journal.clock.at = self.at

    def let(self, seconds: float) -> Scribe:
        self.at += timedelta(seconds=seconds)
        self.journal.clock.at = self.at
        return self

    def begin(self, decided: Plan | None = None) -> Scribe:
        self.plan = decided or self.plan
        if not self.files.plan.exists():
            write(self.files.plan, document(self.plan))
        self.journal.run(self.plan, ADA)
        return self

    def lock(self) -> Scribe:
        self.journal.lock({"epoch": 8, "at": ["london", "paris"], "by": BOB})
        return self

    def step(self, verb: str) -> PlannedStep:
        return next(step for step in self.plan.steps if step.verb == verb)

    def start(self, verb: str) -> Scribe:
        self.journal.step(self.step(verb), StepEvent.STARTED, {"about": f"about {verb}"})
        return self

    def stop(self, verb: str, event: StepEvent = StepEvent.SUCCEEDED, text: str = "", **evidence: Any) -> Scribe:
        self.journal.step(self.step(verb), event, {"text": text or f"{verb} ended", **evidence})
        return self

    def did(self, verb: str, seconds: float, **evidence: Any) -> Scribe:
        return self.start(verb).let(seconds).stop(verb, **evidence)

    def sent(
        self, verb: str, *calls: Call, took: float = 0.02, outcome: str = "done", text: str = "answered"
    ) -> Scribe:
        seqs = self.journal.intents(self.step(verb), calls)
        self.let(took)
        self.journal.results(self.step(verb), [(seq, outcome, {"text": text}) for seq in seqs])
        return self

    def undo(self, verb: str, seconds: float, event: StepEvent = StepEvent.UNDONE, text: str = "put back") -> Scribe:
        self.journal.step(self.step(verb), StepEvent.UNDO_STARTED, {})
        return self.let(seconds).stop(verb, event, text)

    def sample(self, verb: str, evidence: Mapping[str, Json]) -> Scribe:
        self.journal.sample(self.step(verb), evidence)
        return self

    def to_fence(self) -> Scribe:
        """Everything up to a closed source: 4 s, of which the fence took 0.5 s."""
        self.did("observe", 0.3).did("check", 0.2).start("estimate").stop("estimate", StepEvent.UNNEEDED, "no history")
        self.did("catch-up", 1.0).start("quiesce").sent("quiesce", call("pause orders at london"), took=0.1)
        for held in (7, 3, 0, 0):
            self.sample("quiesce", {"delivering": held}).let(0.475)
        self.stop("quiesce", paused=1)
        return (
            self.start("fence")
            .sent("fence", call("close acceptor clients at london"), took=0.5)
            .stop("fence", proof="attempt")
        )

    def drained(self, seconds: float = 2.0, first: int = 1000) -> Scribe:
        self.start("drain")
        for place in range(11):
            left = first * (10 - place) // 10
            self.sample("drain", flows(left, left // 20)).let(seconds / 10 if place < 10 else 0)
        return self.stop("drain", text="nothing is under way")

    def activated(self) -> Scribe:
        self.did("verify", 1.0, **{"orders-1": {"samples": 3, "ids_compared": 12, "depths": {"orders": 12}}})
        self.did("point-of-no-return", 0)
        self.start("activate").sent("activate", call("open acceptor clients at paris", "paris"), took=0.5)
        self.stop("activate", proof="attempt")
        return self.did("probe", 0.4)

    def end(
        self, code: int, outcome: str, summary: str, findings: Sequence[Mapping[str, Json]] = (), **data: Any
    ) -> Scribe:
        pop: dict[str, Any] = {
            "schema": "dr-ctl/1",
            "command": "swapover",
            "outcome": outcome,
            "exit_code": code,
            "run": NAME,
            "summary": summary,
            "findings": list(findings),
            "debts": [],
            "data": data,
        }
        pop["command"] = data.pop("command", "swapover")
        self.journal.end(pop)
        sealed: dict[str, Json] = {"last_hash": self.journal.last_hash, "count": self.journal.count}
        write(self.files.result, {**pop, "journal": sealed})
        return self.close()

    def close(self) -> Scribe:
        self.journal.close()
        return self

    def again(self) -> Scribe:
        return Scribe(self.folder, self.at, self.plan)


def done(folder: Path) -> Scribe:
    scribe = Scribe(folder).begin().to_fence().drained().activated()
    return scribe.end(0, "ok", "paris serves", pairs=[{"name": "orders-1", "serving": "paris"}], outage_s=4.0)


def undone(folder: Path) -> Scribe:
    scribe = Scribe(folder).begin().to_fence().start("drain")
    for place in range(40):
        scribe.sample("drain", flows(5000 - 20 * place, attached=place < 20)).let(1.5)
    scribe.stop("drain", StepEvent.FAILED, "not drained after 60 s: 4 220 events under way; they move too slowly")
    scribe.undo("fence", 0.8, text="london lets clients in again").undo("quiesce", 0.2)
    text = "not drained after 60 s; undone: london serves again"
    return scribe.end(24, "drain_timeout", text, pairs=[{"name": "orders-1", "serving": "london"}], undone=True)


def aborted(folder: Path) -> Scribe:
    scribe = Scribe(folder).begin().to_fence().close().again().let(60).lock()
    scribe.undo("fence", 0.8, text="london lets clients in again").undo("quiesce", 0.2)
    return scribe.end(0, "ok", "aborted; undone: london serves again", command="abort", undone=True)


def resumed(folder: Path) -> Scribe:
    scribe = Scribe(folder).begin().to_fence().start("drain").sample("drain", flows(900)).let(1)
    scribe.sample("drain", flows(850)).close()
    scribe = scribe.again().let(3600).begin(plan(first=12))
    scribe.did("observe", 0.2).did("check", 0.2)
    scribe.start("quiesce").stop("quiesce", StepEvent.UNNEEDED, "london is closed to clients already")
    scribe.start("fence").stop("fence", StepEvent.UNNEEDED, "london is closed to clients already", proof="flag")
    scribe.drained().activated()
    return scribe.end(0, "ok", "paris serves", pairs=[{"name": "orders-1", "serving": "paris"}], outage_s=3.0)


def cut_off(folder: Path) -> Scribe:
    """Ended by its machine in the middle of the fence: a call without a result, and a torn last line."""
    scribe = Scribe(folder).begin()
    scribe.did("observe", 0.3).did("check", 0.2).start("fence")
    scribe.journal.intents(scribe.step("fence"), [call("close acceptor clients at london")])
    with scribe.files.journal.open("ab") as file:
        file.write(b'{"seq":8,"time":"2026-11-2')
    return scribe.close()
