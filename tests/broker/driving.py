"""Runs the command line against a lab as an operator or a script does, and sets scenes on the brokers."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.system import boottime_s, system
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.settings.loader import load
from dr_ctl.topologies.registry import opened
from dr_ctl_lab.lab.clients.client import Confirmed, Outgoing, Proto, Received, Traits, body_of
from dr_ctl_lab.lab.clients.dialling import Dialler, Opener
from dr_ctl_lab.lab.clients.stomp import StompClient
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.played import PlayedTwin
from tests import documents
from tests.broker.recorder import Recorder, Snapshot

LONG_S = 120.0
BY_ID = ("removeMatchingMessages(java.lang.String)", "removeMessages(java.lang.String)")
Stage = PlayedTwin | Lab  # two real brokers or their twin, which are spoken to in the same words
STARTED: list[subprocess.Popen[str]] = []


def end_all() -> None:
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
        if process.stdout is not None and not process.stdout.closed:
            process.communicate()


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, its one JSON document, which is as its schema says, and what it told the
    operator."""

    code: int
    document: dict[str, Any]
    err: str

    def __post_init__(self) -> None:
        if self.document:  # none where it was killed
            documents.hold(self.document)

    @property
    def told(self) -> str:
        return json.dumps(self.document, ensure_ascii=False)

    @property
    def ids(self) -> list[str]:
        return [finding["id"] for finding in self.document["findings"]]

    @property
    def errors(self) -> list[str]:
        return [finding["text"] for finding in self.document["findings"] if finding["severity"] == "error"]

    def rows(self, ident: str) -> list[dict[str, Any]]:
        return [finding for finding in self.document["findings"] if finding["id"] == ident]

    def finding(self, ident: str) -> dict[str, Any]:
        [row] = self.rows(ident)
        return row

    def texts(self, ident: str) -> list[str]:
        return [row["text"] for row in self.rows(ident)]


class Operator:
    """One operator with one STATE directory and one settings file."""

    def __init__(self, lab: Stage, state: Path, settings: Path | None = None) -> None:
        self.lab, self.state = lab, state
        self.settings = settings or lab.settings_path

    def start(self, *words: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "DR_CTL_CONFIG": str(self.settings), "DR_CTL_STATE_DIR": str(self.state)}
        process = subprocess.Popen(
            [sys.executable, "-m", "dr_ctl", *words, "--json"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        STARTED.append(process)
        return process

    def run(self, *words: str) -> Ended:
        return self.wait(self.start(*words))

    def wait(self, process: subprocess.Popen[str]) -> Ended:
        out, err = process.communicate(timeout=LONG_S)
        return Ended(process.returncode, json.loads(out) if out else {}, err)

    def journal(self) -> list[dict[str, Any]]:
        """The last run's journal, whole lines only."""
        runs = sorted((self.state / "runs").iterdir())
        lines = (runs[-1] / "journal.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def calls(self) -> list[dict[str, Any]]:
        return [entry["call"] for entry in self.journal() if entry["kind"] == "intent"]


def state_of(lab: Lab) -> Mapping[str, Any]:
    """Everything dr-ctl may set at both sites: listeners, links, pauses, and which queues there are; not since when
    each broker runs, for a test may restart it."""
    with closing(opened(load(lab.settings_path), Timeouts(), lab.directory)) as topology:
        snapshot = topology.observe()
        assert all(broker.silent is None for broker in snapshot.brokers), snapshot
        baseline = topology.recipe.baseline(snapshot)
    return {
        site: {pair: {key: value for key, value in state.items() if key != "start"} for pair, state in pairs.items()}
        for site, pairs in baseline.items()
    }


def until(condition: Callable[[], object], *, within_s: float = 120.0, why: str = "", every_s: float = 0.02) -> None:
    """Wait for a condition; fails saying which. The limit is a stuck machine's, not a slow one's."""
    end = boottime_s() + within_s
    while not condition():
        assert boottime_s() < end, f"not within {within_s} s: {why or condition}"
        system().sleep(every_s)


def refuses(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def execute(lab: Lab, site: str, bean: str, operation: str, *arguments: Any) -> Any:
    admin = lab.admin(site)
    name = f"{admin._broker}{',' + bean if bean else ''}"
    return admin._call({"type": "exec", "mbean": name, "operation": operation, "arguments": list(arguments)})


def on_queue(lab: Lab, site: str, queue: str, operation: str, *arguments: Any) -> Any:
    quoted = '"' + queue.replace("\\", "\\\\").replace('"', '\\"').replace("*", "\\*").replace("?", "\\?") + '"'
    bean = f'component=addresses,address={quoted},subcomponent=queues,routing-type="anycast",queue={quoted}'
    return execute(lab, site, bean, operation, *arguments)


def send(lab: Lab, site: str, queue: str, count: int) -> None:
    """Put durable messages into a queue through management, as the broker's administrator can with listeners closed.
    The broker's answer does not say that they are on disk."""
    who = lab.site(site).admin
    for number in range(count):
        text = f"message {number}"
        kinds = "java.util.Map,int,java.lang.String,boolean,java.lang.String,java.lang.String"
        on_queue(lab, site, queue, f"sendMessage({kinds})", {}, 3, text, True, who.user, who.password)


def send_as_client(lab: Lab, queue: str, count: int, at: str | None = None, **more: str) -> None:
    """Send durable messages to the site that serves, or to that one, with more headers, each confirmed: they are on
    disk, whatever comes."""
    target = lab.target()
    sites = tuple(site for site in target.sites if at in (None, site[0]))
    dialled = Dialler(replace(target, sites=sites)).dial(threading.Event())
    assert dialled is not None
    client = dialled[1]
    assert isinstance(client, StompClient)
    try:
        for number in range(count):
            headers = {"destination": queue, "destination-type": "ANYCAST", "persistent": "true", "receipt": "sent"}
            client.connection.stomp.send_frame("SEND", {**headers, **more}, f"message {number}")
            until(lambda: [one for one in client.receive(0.1) if isinstance(one, Confirmed)], why="it is confirmed")
    finally:
        client.close()


def send_speaking(
    lab: Lab,
    protocol: Proto,
    site: str,
    queue: str,
    count: int,
    traits: Traits | None = None,
    *,
    size: int = 100,
    home: Path | None = None,
    id_header: str = "",
) -> list[str]:
    """Send durable messages in that protocol, each confirmed; their ids, which `id_header` has too."""
    target = lab.target()
    opener = Opener(target.dialect, home or target.home)
    client = opener.open(protocol, dict(target.sites)[site], target.login)
    assert client is not None
    idents = [f"{uuid4()}" for _ in range(count)]
    try:
        for ident in idents:
            headers = {id_header: ident} if id_header else {}
            client.send(Outgoing(ident, queue, body_of(ident, size), traits or Traits(), headers), confirm=ident)
            until(
                lambda: [frame for frame in client.receive(0.1) if isinstance(frame, Confirmed)], why="it is confirmed"
            )
    finally:
        client.close()
        opener.close()
    return idents


def taken(lab: Lab, site: str, queue: str, count: int) -> list[str]:
    target = lab.target()
    opener = Opener(target.dialect, target.home)
    client = opener.open(Proto.STOMP, dict(target.sites)[site], target.login)
    assert client is not None
    client.subscribe([queue])
    came: list[str] = []
    confirmed: set[str] = set()

    def all_are() -> bool:
        for frame in client.receive(0.1):
            if isinstance(frame, Received):
                came.append(frame.ident)
                client.ack(frame, confirm=f"{len(came)}")
            else:
                confirmed.add(frame.name)
        return len(confirmed) >= count

    try:
        until(all_are, within_s=30, why=f"{count} are taken")
    finally:
        client.close()
        opener.close()
    return came


def changed_settings(lab: Stage, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of the lab's settings with something changed: beside them, named for a folder, so that each path in it
    holds."""
    settings = yaml.safe_load(lab.settings_path.read_text(encoding="utf-8"))
    change(settings)
    path = lab.directory / f"{folder.name}.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


@contextmanager
def recorded(
    lab: Stage, folder: Path, sites: Sequence[str] = ("london", "paris")
) -> Iterator[tuple[Path, dict[str, Recorder]]]:
    """Settings whose consoles are recorders, one per site."""
    with ExitStack() as stack:
        recorders = {}

        def record(told: dict[str, Any]) -> None:
            for site in sites:
                broker = told["sites"][site]["brokers"][0]
                recorders[site] = stack.enter_context(Recorder(broker["jolokia"]))
                broker["jolokia"] = recorders[site].address

        yield changed_settings(lab, folder, record), recorders


def killed_at(
    operator: Operator, recorders: dict[str, Recorder], site: str, nth: int, *words: str, operation: str = ""
) -> None:
    """Kill the command right before its nth request that changes something at a site, no document of dr-ctl's own and
    no copy of what was consumed, reaches the broker; of those only that begin with `operation`."""
    started: list[subprocess.Popen[str]] = []
    changing: list[list[Snapshot]] = []

    def before(changes: list[Snapshot]) -> tuple[int, str] | None:
        own = [change for change in changes if change.operation.startswith(operation)]
        # Nor what an id names: a copy of what was consumed may go at any time.
        if all("dr-ctl." in str(item.arguments) or item.operation in BY_ID for item in own):
            return None
        changing.append(changes)
        if len(changing) != nth:
            return None
        os.kill(started[0].pid, signal.SIGKILL)
        return 500, "never forwarded"

    recorders[site].before = before
    started.append(operator.start(*words))
    output, _ = started[0].communicate()
    recorders[site].before = None
    assert len(changing) == nth, output


def reset(lab: Lab) -> None:
    """Bring a lab that a test used back to: both up, links whole and attached, london serves, nothing paused, empty."""
    lab.heal()
    lab.delay(0)
    for site in ("london", "paris"):
        lab.start(site)
        peer = lab.state.other(site).name
        execute(lab, site, "", "startBrokerConnection(java.lang.String)", peer)
        for document in [name for name in lab.admin(site).depths() if name.startswith("dr-ctl.")]:
            execute(lab, site, "", "destroyQueue(java.lang.String)", document)  # the lock of a killed run, say
    lab.close_clients("paris")
    lab.close_clients("london")
    lab.wait_mirrored()
    for site in ("london", "paris"):
        for queue in _business(lab, site):
            on_queue(lab, site, queue, "resume()")
    for queue in _business(lab, "london"):
        on_queue(lab, "london", queue, "removeAllMessages()")
    settle(lab)
    for queue in _business(lab, "paris"):
        on_queue(lab, "paris", queue, "removeAllMessages()")  # what only paris held
    settle(lab)
    for queue in (*lab.queues, "DLQ", "ExpiryQueue"):
        for site in ("london", "paris"):
            lab.admin(site).create_queue(queue)
    lab.open_clients("london")


def _business(lab: Lab, site: str) -> list[str]:
    return [name for name in lab.admin(site).depths() if not name.startswith(("$", "activemq.", "dr-ctl."))]


def settle(lab: Lab) -> None:
    """Wait until nothing is under way. A link that was cut in its handshake can hang attached: it is restarted."""
    end = boottime_s() + 10.0
    while not (_settled(lab, "london") and _settled(lab, "paris")):
        if boottime_s() > end:
            for site in ("london", "paris"):
                for word in ("stop", "start"):
                    execute(lab, site, "", f"{word}BrokerConnection(java.lang.String)", lab.state.other(site).name)
            break
        system().sleep(0.02)
    until(lambda: _settled(lab, "london") and _settled(lab, "paris"), why="outflows empty")


def _settled(lab: Lab, site: str) -> bool:
    admin = lab.admin(site)
    try:
        outflow = admin.depth(f"$ACTIVEMQ_ARTEMIS_MIRROR_{lab.state.other(site).name}")
        return outflow == 0 and admin._read(admin._broker, "PendingMirrorAcks") == 0
    except BrokerError:
        return False


def accepting(refused: Ended) -> list[str]:
    """The options that a refusal for loss or duplicates names, with their figures."""
    remedies = " ".join(str(finding["remedy"]) for finding in refused.document["findings"])
    named = dict(re.findall(r"(--accept-(?:loss|duplicates)) (\w+)", remedies))
    return [word for pair in named.items() for word in pair]
