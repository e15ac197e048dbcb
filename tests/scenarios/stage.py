"""The stage of a scenario: two simulated sites, the meaning of its lines, and the situation at the sites."""

import os
import re
import shutil
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

import pytest
import yaml

from dr_ctl.core.machine import no_java
from dr_ctl.core.notation import seconds
from dr_ctl.core.system import system
from dr_ctl.engine.lease import LockDocument
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin import console, jolokia
from dr_ctl_lab.twin.broker import DEAD_LETTERS, EXPIRED, Broker
from dr_ctl_lab.twin.faults import Fault, FaultKind, Trigger
from dr_ctl_lab.twin.host import Host
from dr_ctl_lab.twin.jolokia import Answer, Management, Request, failed
from dr_ctl_lab.twin.kinds import CONTINUITY, MIRROR
from dr_ctl_lab.twin.site import PAIR
from tests.scenarios.calls import call
from tests.scenarios.oddities import ODDITIES
from tests.simulated import interrupt, nothing_real
from tests.timeouts import impatient
from tests.topologies.workloads.work import Work
from tests.twin.conftest import prompt
from tests.twin.matrix import Death, at_rest, documents, edited, let_in, put, take
from tests.twin.subject import Client

QUEUES: Final = ("orders.in", "orders.audit")
SETTLES_S: Final = 1.0
POLL_S: Final = 0.1
"""Longer than the default, to save time in waits that fail."""


class Unmet(AssertionError):
    """A line of a scenario cannot be parsed or did not take effect."""


@dataclass
class Hook:
    """An action before, after or instead of a call, at most `times` times."""

    when: str
    place: str
    call: str
    do: Callable[[], object]
    times: int | None = 1
    struck: bool = False

    def due(self, when: str, place: str, made: str) -> bool:
        is_due = (self.when, self.place) == (when, place) and made.startswith(self.call) and self.times != 0
        if is_due:
            self.struck = True
            self.times = None if self.times is None else self.times - 1
        return is_due


class NoEstimate:
    """Replaces the process of the estimate, which runs in real time: it answers that there is no Java."""

    lives = runs = False

    def __init__(self, *request: Any, **more: Any) -> None:
        del request, more

    def ask(self, request: Any) -> None:
        del request

    def answer(self) -> dict[str, Any]:
        lacks = no_java("Spark needs it")
        return {"error": str(lacks), "remedy": lacks.remedy}

    def end(self) -> None:
        """Do nothing: there is no process."""


class Stage:
    """Two sites; London serves by default. `calls` are those of the running command."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch, until_the_end: ExitStack) -> None:
        self.home, self.patch = home, patch
        self.calls: list[tuple[str, str]] = []
        self.answers: list[str] = []
        self.at_question: list[tuple[str, Callable[[], object]]] = []
        self.death: Death | None = None
        self.works: dict[str, Work] = {}
        self.locks_of_others: set[str] = set()
        self.at_first: dict[str, str] = {}
        self._until_the_end = until_the_end
        self._twin: PlayedTwin | None = None
        self._places: dict[str, Host] = {}
        self._hooks: list[Hook] = []
        self._clients: dict[str, Client] = {}

    @classmethod
    @contextmanager
    def set(cls) -> Iterator[Self]:
        """A new stage, in a folder of its own, in simulated time."""
        with ExitStack() as until_the_end:
            home = Path(until_the_end.enter_context(TemporaryDirectory(prefix="dr-ctl-scenario-"))).resolve()
            patch = until_the_end.enter_context(pytest.MonkeyPatch.context())
            tried = until_the_end.enter_context(nothing_real())
            (home / "no-java").mkdir()
            for name in ("FORCE_COLOR", "JAVA_HOME", "DR_CTL_LOG"):
                patch.delenv(name, raising=False)
            environment = {"DR_CTL_STATE_DIR": str(home / "state"), "DR_CTL_CONFIG": str(home / "orders/dr-ctl.yaml")}
            environment |= {"XDG_CONFIG_HOME": str(home / "none"), "LOGNAME": "ada", "COLUMNS": "120"}
            environment |= {"NO_COLOR": "1", "TERM": "dumb"}
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setenv("PATH", f"{home / 'no-java'}:/usr/bin:/bin")
            patch.setattr(shutil, "which", _without_java(shutil.which))
            for module in ("dr_ctl.application.estimates", "dr_ctl.agents.monitor"):
                patch.setattr(f"{module}.Estimating", NoEstimate)
            patch.setattr(socket, "gethostname", lambda: "ops-1")
            patch.chdir(home)
            impatient(patch, poll_s=POLL_S)
            yield cls(home, patch, until_the_end)
            assert tried == []

    # the lines

    def do(self, line: str) -> None:
        """Execute a line, and wait until it takes effect."""
        act = self._meant(line)
        act()
        if line.split(maxsplit=1)[0] not in _SETTLED:
            system().sleep(SETTLES_S)

    def _meant(self, line: str) -> Callable[[], object]:
        for pattern, method in _WORDS:
            if (fullmatch := pattern.fullmatch(line)) is not None:
                said = {name: text for name, text in fullmatch.groupdict().items() if text is not None}
                return lambda: method(self, **said)
        raise Unmet(f"no line of a scenario: {line!r}")

    @property
    def twin(self) -> PlayedTwin:
        if self._twin is None:
            self.set_up(MIRROR)
        assert self._twin is not None
        return self._twin

    def set_up(self, topology: str, queues: str = "", serving: str = "london", pairs: str = "") -> None:
        """Start the sites; by default of a mirror, at the first line that needs them."""
        if self._twin is not None:
            raise Unmet("the topology must be the first line that acts on the sites")
        if topology == CONTINUITY:
            prompt(self.patch)
        twin = self._twin = self._until_the_end.enter_context(
            PlayedTwin.up(
                self.home / "orders",
                topology=topology,
                queues=tuple(queues.split()) or QUEUES,
                serving=None if serving == "nobody" else serving,
                pairs=tuple(pairs.split()) or (PAIR,),
            )
        )
        brokers = {f"{site}/{pair}": twin.host(site, pair) for site in twin.sites for pair in twin.pairs}
        alone = len(twin.pairs) == 1
        self._places = {place.partition("/")[0] if alone else place: host for place, host in brokers.items()}
        for host in self._places.values():
            for name in (DEAD_LETTERS, EXPIRED):  # no scenario speaks of them
                if name in host.broker.queues:
                    host.broker.destroy_queue(name, here_only=True)
        self.setting("objectives")
        self.setting("drain.poll", "50ms")
        self._listen()
        self.at_first = self.situation()

    def host(self, place: str) -> Host:
        if place not in self.places:
            raise Unmet(f"{place} is none of {', '.join(self.places)}")
        return self.places[place]

    @property
    def places(self) -> dict[str, Host]:
        """The brokers by site, or by site and pair where there are several pairs."""
        assert self.twin
        return self._places

    def _broker(self, place: str) -> Broker:
        return self.host(place).broker

    def each(self, place: str, method: str, *words: Any) -> None:
        """Call a method of the twin for a broker, or for all of a site."""
        self.host(place) if place not in self.twin.sites else None
        site, _, pair = place.partition("/")
        getattr(self.twin, method)(site, *words, *([pair] if pair else []))

    def put(self, count: str, queue: str, place: str) -> None:
        """Send messages to a broker, or to each broker of a site."""
        site, _, pair = place.partition("/")
        for case in [pair] if pair else self.twin.pairs:
            put(self.twin, site, queue, int(count), case)

    def take(self, count: str, queue: str, place: str) -> None:
        self.host(place)
        for _ in range(int(count)):
            take(self.twin, place, queue)

    def make_queue(self, queue: str, place: str) -> None:
        options = {"name": queue, "address": queue, "routing-type": "ANYCAST", "durable": True}
        self._broker(place).create_queue(options, here_only=True)

    def pause(self, queue: str, place: str) -> None:
        self._broker(place).queues[queue].paused = True

    def listener(self, listener: str, place: str, is_open: bool) -> None:
        broker = self._broker(place)
        (broker.open_listener if is_open else broker.close_listener)(broker.acceptors[listener])

    def new_listener(self, listener: str, place: str) -> None:
        acceptors = self._broker(place).acceptors
        acceptors[listener] = replace(acceptors["mirror"], name=listener, port=1)

    def client(self, name: str, place: str, queue: str) -> None:
        """Connect a client, until the end of the scenario."""
        client = Client(self.twin.site(place), {"client-id": name})
        client.subscribe(queue)
        self._clients[name] = client
        self._until_the_end.callback(client.connection.close, politely=False)

    def leave(self, name: str) -> None:
        self._clients.pop(name).connection.close(politely=False)

    def lie(self, place: str, attribute: str, value: str, times: str | None = None) -> None:
        lasting = int(times) if times else None
        fault = Fault(FaultKind.WRONG_VALUE, attribute=attribute, value=yaml.safe_load(value), times=lasting)
        self.host(place).faults.add(fault)

    def fault(self, kind: str, place: str, call: str, times: str = "1", after: str = "") -> None:
        """Add a fault at a call, written as in the output without arguments; `a reading` is any request without a
        change."""
        verb, _, thing = call.partition(" ")
        when = Trigger(False) if call == "a reading" else Trigger(True, None if verb == "any" else verb, thing or None)
        lasting = None if times == "always" else int(times.split(maxsplit=1)[0])
        later = seconds(after) if after else None
        self.host(place).faults.add(Fault(FaultKind(kind), when, lasting, back_after_s=later))

    def setting(self, path: str, value: str | None = None) -> None:
        """Change one key of the settings; without a value remove it."""
        *keys, last = path.split(".")
        with edited(self.twin) as settings_file:
            at: Any = settings_file
            for key in keys:
                at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
            if value is None:
                at.pop(last, None)
            else:
                at[int(last) if isinstance(at, list) else last] = yaml.safe_load(value)

    def rename(self, site: str, name: str) -> None:
        """Rename a site in the settings."""
        with edited(self.twin) as by_name:
            by_name["sites"] = {
                name if value == site else value: section for value, section in by_name["sites"].items()
            }

    def write(self, path: str, text: Sequence[str]) -> None:
        assert self.twin
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
        file.chmod(0o700 if text and text[0].startswith("#!") else 0o600)

    def lock(self, holder: str, place: str, how: str = "") -> None:
        """Add the lock of another machine's run, with the next epoch."""
        broker = self._broker(place)
        address, now_ms = f"dr-ctl.lock.{broker.site}", broker.now_ms()
        epoch = 1 + max((int(name.rpartition(".")[2]) for name in broker.queues if name.startswith(address)), default=3)
        run, what = "20270314T095930Z-swapover-paris-beef", "swapover to paris"
        times = {"start_ms": now_ms - 30_000, "expires_ms": now_ms + 30_000}
        who = {"what": what, "holder": holder, "host": "ops-2", "pid": 4711, "state": "another"}
        held = LockDocument(epoch, run, **who, **times, released=how == "released ")  # type: ignore[arg-type]
        text = "?" if how == "unreadable " else held.to_text()
        self.locks_of_others.add(f"{address}.{epoch}")
        options = {"name": f"{address}.{epoch}", "address": address, "routing-type": "ANYCAST", "durable": True}
        broker.create_queue({**options, "internal": True, "user": text}, here_only=True)

    def key(self, name: str, signs: str = "", person: str = "", until: str = "") -> None:
        """Create an SSH key; add it to the settings' signers, with an end of its validity, where the line says so."""
        folder = self.twin.directory / "keys"
        folder.mkdir(mode=0o700, exist_ok=True)
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
        subprocess.run(words, check=True, timeout=30)
        if signs:
            public = (folder / f"{name}.pub").read_text(encoding="utf-8")
            with (folder / "signers.allowed").open("a", encoding="utf-8") as file:
                options = f'valid-before="{until}" ' if until else ""
                file.write(f"{person or name}@example.com {options}{public}")

    def sign(self, name: str, path: str, what: str) -> None:
        """Sign a file with SSH, without dr-ctl's checks."""
        words = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(self.twin.directory / "keys" / name), "-n", what, path]
        subprocess.run(words, check=True, timeout=30, capture_output=True)
        Path(f"{path}.sig").rename(f"{path}.{name}.sig")

    def state(self, name: str) -> None:
        """Change the state directory, as on another machine."""
        self.patch.setenv("DR_CTL_STATE_DIR", str(self.home / name))

    def damage(self) -> None:
        """Change one byte of the newest run's journal."""
        path = max((self.home / "state" / "runs").glob("*/journal.jsonl"))
        first, line, *more = path.read_bytes().split(b"\n")
        path.write_bytes(b"\n".join([first, line.replace(b"started", b"startet", 1), *more]))

    def dies(self, when: str, number: str) -> None:
        self.death = Death(int(number), after=when == "after")

    def hook(self, when: str, place: str, call: str, line: str) -> None:
        self.host(place)
        self._hooks.append(Hook(when, place, call, self._meant(line)))

    def refuse(self, place: str, call: str, always: str = "", times: str = "1") -> None:
        self.host(place)
        self._hooks.append(Hook("instead", place, call, lambda: None, None if always else int(times)))

    def refuses_nothing(self, place: str) -> None:
        self.host(place)
        self._hooks = [hook for hook in self._hooks if (hook.when, hook.place, hook.struck) != ("instead", place, True)]

    def set_clock(self, way: str, time: str) -> None:
        """Change this machine's clock; the brokers' clocks stay."""
        now, by = system().now, timedelta(seconds=seconds(time) * (1 if way == "on" else -1))
        self.patch.setattr(system(), "now", lambda: now() + by)

    def question(self, line: str) -> None:
        self.at_question.append((line, self._meant(line)))

    # observations

    def _listen(self) -> None:
        """Intercept every request, and record changing ones."""
        by_name = {id(host.management): place for place, host in self._places.items()}

        def asked(at: Management, request: Request) -> Answer:
            if not request.changes:
                return jolokia.answer(at, request)
            place, made = by_name[id(at)], call(request)
            self._strike("before", place, made)
            if self._strike("instead", place, made):
                return failed("java.lang.IllegalStateException", "not now", 500)
            return jolokia.answer(at, request)

        self.patch.setattr(console, "answer", asked)
        for place, host in self._places.items():
            self.patch.setattr(host, "record_change", self._noting(host, place))

    def _noting(self, host: Host, place: str) -> Callable[[Request, int], None]:
        record_change = host.record_change

        def noted(request: Request, status: int) -> None:
            record_change(request, status)
            made = call(request)
            self.calls.append((place, made if status == 200 else f"{made} -> {status}"))
            self._strike("after", place, made)

        return noted

    def _strike(self, when: str, place: str, made: str) -> bool:
        due = [hook for hook in self._hooks if hook.due(when, place, made)]
        for item in due:
            item.do()
        return bool(due)

    def untouched(self) -> list[str]:
        """Hooks, faults, questions and answers that were not used; a scenario may not have any at its end."""
        hooks = [f"{hook.when} {hook.place} {hook.call}" for hook in self._hooks if not hook.struck]
        faults = [
            f"{fault.kind.value} at {place}" for place, host in self._places.items() for fault in host.faults.unused
        ]
        return [*hooks, *faults, *(f"at the question: {line}" for line, _ in self.at_question), *self.answers]

    def situation(self) -> dict[str, str]:
        """The settled state of each broker, and the documents of dr-ctl, without the single lock of a site."""
        at_rest(self.twin)
        kept = sorted(re.sub(r"^dr-ctl\.", "", name) for name in documents(self.twin))
        sites = Counter(text.rpartition(".")[0] for text in {*kept} if text.startswith("lock."))
        kept = [
            item for item in kept if sites[item.rpartition(".")[0]] != 1 or f"dr-ctl.{item}" in self.locks_of_others
        ]
        by_name = {place: self._broker_text(host.broker) for place, host in self.places.items()}
        return by_name | ({"kept": ", ".join(kept)} if kept else {})

    def _broker_text(self, broker: Broker) -> str:
        own = [queue for name, queue in sorted(broker.queues.items()) if not name.startswith("dr-ctl.")]
        depths = [f"{name.name} {len(name.messages)}" for name in own if name.name in self.twin.queues or name.messages]
        if not broker.alive:
            return f"down; {', '.join(depths) or 'no queue'}"
        listener = broker.acceptors[broker.clients_listener].started
        reached = let_in(broker, self.twin.queues) if listener else set()
        clients = "clients are in" if reached == {*self.twin.queues} else f"clients are in {', '.join(sorted(reached))}"
        others = [acceptor for acceptor in broker.acceptors.values() if acceptor.name != broker.clients_listener]
        parts = {
            "closed": ", ".join(other.name for other in others if not other.started),
            "stopped": ", ".join(name for name, value in broker.settable.items() if value is False),
            "paused": ", ".join(queue.name for queue in own if queue.paused),
            "lock": ", ".join(item.status for item in getattr(broker, "coordinators", ())),
        }
        more = [f"{word}: {what}" for word, what in parts.items() if what]
        frozen = ["frozen"] if broker.frozen else []
        return "; ".join([*frozen, clients if reached else "clients are out", ", ".join(depths) or "no queue", *more])


def _without_java(which: Callable[..., str | None]) -> Callable[..., str | None]:
    return lambda name, *more, **told: None if name == "java" else which(name, *more, **told)


_SETTLED: Final = frozenset({"wait", "set", "unset", "env", "before", "after", "at", "run", "answer", "state"})
_AT: Final = r"(?P<place>[\w/.-]+)"
_TWIN: Final = r"(; queues (?P<queues>[^;]+))?(; pairs (?P<pairs>[^;]+))?(; (?P<serving>\w+) serves)?"
_LASTS: Final = r"(, (?P<times>always|\d+ times))?(, back after (?P<after>\w+))?"
_SAID: Final[Sequence[tuple[str, Callable[..., object]]]] = (
    (rf"topology (?P<topology>[^;\s]+){_TWIN}", Stage.set_up),
    (rf"put (?P<count>\d+) (?P<queue>\S+) at {_AT}", Stage.put),
    (rf"take (?P<count>\d+) (?P<queue>\S+) at {_AT}", Stage.take),
    (rf"queue (?P<queue>.+) at {_AT} alone", Stage.make_queue),
    (
        rf"remove (?P<queue>.+) at {_AT} alone",
        lambda stage, queue, place: stage.host(place).broker.destroy_queue(queue, here_only=True),
    ),
    (rf"pause (?P<queue>.+) at {_AT}", Stage.pause),
    (rf"open (?P<listener>\S+) at {_AT}", lambda stage, listener, place: stage.listener(listener, place, True)),
    (rf"close (?P<listener>\S+) at {_AT}", lambda stage, listener, place: stage.listener(listener, place, False)),
    (rf"new listener (?P<listener>\S+) at {_AT}", Stage.new_listener),
    (rf"client (?P<name>\S+) reads (?P<queue>\S+) at {_AT}", Stage.client),
    (r"client (?P<name>\S+) leaves", Stage.leave),
    (rf"lose {_AT}", lambda stage, place: stage.each(place, "kill")),
    (rf"start {_AT}", lambda stage, place: stage.each(place, "start")),
    (rf"freeze {_AT}", lambda stage, place: stage.each(place, "freeze")),
    (rf"thaw {_AT}", lambda stage, place: stage.each(place, "thaw")),
    (rf"sicken {_AT}", lambda stage, place: stage.each(place, "sicken")),
    (
        rf"a stop of {_AT} leaves its process for (?P<time>\w+)",
        lambda stage, place, time: setattr(stage.host(place).broker, "lives_on_s", seconds(time)),
    ),
    (rf"swallow {_AT}", lambda stage, place: stage.each(place, "swallow")),
    (rf"cut the link of {_AT}", lambda stage, place: stage.twin.cut(place)),
    (rf"hang the link of {_AT}", lambda stage, place: stage.twin.cut(place, "hang")),
    (rf"stop the link of {_AT}", lambda stage, place: stage.host(place).broker.stop_link()),
    (r"heal the links", lambda stage: stage.twin.heal()),
    (rf"{_AT}'s clock is off by (?P<ms>-?\d+) ms", lambda stage, place, ms: stage.twin.skew(place, int(ms))),
    (rf"{_AT} reports (?P<attribute>\w+) as (?P<value>.+?)(, (?P<times>\d+) times)?", Stage.lie),
    (rf"fault at {_AT}: (?P<kind>[a-z ]+) at (?P<call>[^,]+){_LASTS}", Stage.fault),
    (rf"{_AT} refuses nothing any more", Stage.refuses_nothing),
    (rf"{_AT} (?P<always>always )?refuses (?P<call>[^,]+)(, (?P<times>\d+) times)?", Stage.refuse),
    (r"set (?P<path>\S+) (?P<value>.+)", Stage.setting),
    (r"unset (?P<path>\S+)", Stage.setting),
    (r"site (?P<site>\w+) is called (?P<name>\w+)", Stage.rename),
    (r"env (?P<name>\w+)=(?P<value>.*)", lambda stage, name, value: stage.patch.setenv(name, value)),
    (rf"(?P<how>released |unreadable )?lock of (?P<holder>\w+) at {_AT}", Stage.lock),
    (r"key of (?P<name>\w+)(?P<signs>, who signs( as (?P<person>[\w*]+))?)?( until (?P<until>\d+))?", Stage.key),
    (r"(?P<name>\w+) signs (?P<path>\S+) for (?P<what>\S+)", Stage.sign),
    (r"no program is found", lambda stage: stage.patch.setenv("PATH", str(stage.home / "no-java"))),
    (r"state (?P<name>\w+)", Stage.state),
    (r"wait (?P<time>\w+)", lambda stage, time: system().sleep(seconds(time))),
    (r"the clock is set (?P<way>on|back) by (?P<time>\w+)", Stage.set_clock),
    (r"answer (?P<text>.+)", lambda stage, text: stage.answers.append(text)),
    (r"at the question: (?P<line>.+)", Stage.question),
    (r"signal (?P<name>[A-Z]+)", lambda stage, name: interrupt(signal.Signals[f"SIG{name}"])),
    (r"the journal is damaged", Stage.damage),
    (
        r"the journal ends after (?P<size>\d+) bytes",
        lambda stage, size: os.truncate(max((stage.home / "state" / "runs").glob("*/journal.jsonl")), int(size)),
    ),
    (r"run dies (?P<when>before|after) change (?P<number>\d+)", Stage.dies),
    (rf"(?P<when>before|after) {_AT} (?P<call>[^:]+): (?P<line>.+)", Stage.hook),
)
_WORDS: Final = [(re.compile(pattern), method) for pattern, method in (*_SAID, *ODDITIES)]
