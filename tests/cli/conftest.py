"""The command line without a process of its own, and installations for it: one that answers and one that does not."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import tests.documents
import tests.patience
from dr_ctl.cli.app import run
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.console import ADMIN
from dr_ctl_lab.twin.site import PAIR
from tests.cli.installation import PASSWORD, QUEUES, Installation, listen

SECRET = {"env": "DR_CTL_TEST_PASSWORD"}


@dataclass(frozen=True)
class Ended:
    """How one command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.out)
        return told

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON documents, one a line."""
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
        code = run(list(words), tests.patience.time_now())
        told = self.capture.readouterr()
        ended = Ended(code, told.out, told.err)
        tests.documents.no_none(told.out + told.err)
        if told.out.startswith('{"'):
            for document in ended.lines:
                tests.documents.hold(document, ended.lines[-1]["command"])
        return ended

    def settings(self, london: str, paris: str, password: Mapping[str, Any] = SECRET, **more: Any) -> Path:
        """Write the settings of an installation with these addresses, which differ for dr-ctl also where one port
        stands for both sites."""
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
        told = {"version": 1, "name": "orders", "topology": "artemis-mirror", "sites": sites, **more}
        path = self.folder / "dr-ctl.yaml"
        path.write_text(yaml.safe_dump(told, sort_keys=False), encoding="utf-8")
        return path


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
def installation(dr_ctl: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    with PlayedTwin.up(dr_ctl.folder / "twin", queues=QUEUES) as twin:
        both = Installation(twin)
        listen(both.sites, monkeypatch)
        both.london.put("orders.in", 3)
        both.even()
        dr_ctl.settings(both.london.url, both.paris.url, drain={"poll": "5ms"})
        yield both


@pytest.fixture
def nobody(dr_ctl: Shell) -> str:
    """An installation whose ports refuse; gives their address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/console/jolokia"
    dr_ctl.settings(url, url)
    return url
