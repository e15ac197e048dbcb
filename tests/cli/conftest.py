"""The command line in this process, with an installation that answers and one that does not."""

import io
import json
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import tests.documents
import tests.timeouts
from dr_ctl.cli.app import run
from dr_ctl.core.document import read
from dr_ctl.engine.plan import Plan
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.console import ADMIN
from dr_ctl_lab.twin.site import PAIR
from tests.cli.sites import PASSWORD, QUEUES, Sites, listen
from tests.report.scribe import NAME, Scribe

SECRET = {"env": "DR_CTL_TEST_PASSWORD"}
LONDON, PARIS = (f"http://{site}:8161/console/jolokia" for site in ("london", "paris"))


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def ids(self) -> list[str]:
        return [finding["id"] for finding in self.document["findings"]]


@dataclass
class Shell:
    """A shell in an empty folder: call it with the words after `dr-ctl`."""

    folder: Path
    capture: pytest.CaptureFixture[str]

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def __call__(self, *words: str) -> Ended:
        self.capture.readouterr()
        code = run(list(words), tests.timeouts.time_now())
        output = self.capture.readouterr()
        ended = Ended(code, output.out, output.err)
        tests.documents.no_none(output.out + output.err)
        if output.out.startswith('{"'):
            for document in ended.lines:
                tests.documents.hold(document, ended.lines[-1]["command"])
        return ended

    def run(self, name: str = NAME) -> Path:
        """Create the empty folder of a run."""
        folder = self.state / "runs" / name
        folder.mkdir(parents=True)
        return folder

    def journal(self, run: str = NAME) -> list[dict[str, Any]]:
        lines = (self.state / "runs" / run / "journal.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    @contextmanager
    def edited(self) -> Iterator[dict[str, Any]]:
        path = self.folder / "dr-ctl.yaml"
        document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        yield document
        path.write_text(yaml.safe_dump(document), encoding="utf-8")

    def add(self, **more: Any) -> None:
        with self.edited() as settings_file:
            settings_file.update(more)

    def settings(
        self, london: str = LONDON, paris: str = PARIS, password: Mapping[str, Any] = SECRET, **more: Any
    ) -> Path:
        """Write the settings of an installation; where both sites have the same address, they are made to differ."""
        paris = f"{paris}?" if paris == london else paris
        return self.installed({"london": {PAIR: london}, "paris": {PAIR: paris}}, password, **more)

    def installed(
        self, urls: Mapping[str, Mapping[str, str]], password: Mapping[str, Any] = SECRET, **more: Any
    ) -> Path:
        """Write the settings of an installation with these addresses of Jolokia, by site and pair."""
        usual = {"username": ADMIN, "password": dict(password), "clients": ["clients"], "mirror": ["mirror"]}
        sites = {
            site: {"brokers": [{**usual, "name": name, "jolokia": url} for name, url in pairs.items()]}
            for site, pairs in urls.items()
        }
        options = {"version": 1, "name": "orders", "topology": "artemis-mirror", "sites": sites, **more}
        path = self.folder / "dr-ctl.yaml"
        path.write_text(yaml.safe_dump(options, sort_keys=False), encoding="utf-8")
        return path


class Terminal(io.StringIO):
    """The input of a person; `at_question` is called while an answer is awaited."""

    at_question: Callable[[], None] = staticmethod(lambda: None)

    def isatty(self) -> bool:
        return True

    def readline(self, size: int | None = -1) -> str:
        self.at_question()
        return super().readline(size)


ACCEPTED = ("--accept-loss", "unknown", "--accept-duplicates", "unknown")


def swapover(dr_ctl: Shell, *words: str, to: str = "paris") -> Ended:
    return dr_ctl("swapover", "--to", to, "--json", *words)


def failover(dr_ctl: Shell, *words: str) -> Ended:
    return dr_ctl("failover", "--to", "paris", "--json", *words)


def begun(dr_ctl: Shell, sites: Sites, *verbs: str) -> None:
    dr_ctl("plan", "swapover", "--to", "paris", "--out", "plan.json")
    document = json.loads((dr_ctl.folder / "plan.json").read_text(encoding="utf-8"))
    scribe = Scribe(dr_ctl.run(), plan=read(Plan, document))
    scribe.begin()
    for verb in verbs:
        calls = [call for call in scribe.step(verb).calls if call.when is None]
        for call in calls:
            (sites.london if call.site == "london" else sites.paris).do(call)
        scribe.start(verb).sent(verb, *calls).stop(verb)
    scribe.close()
    sites.forget()


@pytest.fixture(autouse=True)
def simulated(system_of_test: None) -> None:
    """Every test here."""


@pytest.fixture
def dr_ctl(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    for name in ("DR_CTL_CONFIG", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DR_CTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("DR_CTL_TEST_PASSWORD", PASSWORD)
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield Shell(tmp_path, capsys)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def sites(dr_ctl: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sites]:
    """An installation that answers; London has three messages."""
    with PlayedTwin.up(dr_ctl.folder / "twin", queues=QUEUES) as twin:
        sites = Sites(dr_ctl, twin)
        listen(sites.both, monkeypatch)
        sites.london.put("orders.in", 3)
        sites.wait_settled()
        sites.settings()
        yield sites


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Terminal]:

    def typing(text: str) -> Terminal:
        terminal = Terminal(text)
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        return terminal

    return typing


@pytest.fixture
def nobody(dr_ctl: Shell) -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/console/jolokia"
    dr_ctl.settings(url, url)
    return url
