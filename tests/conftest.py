"""Fixtures for all folders: the command line in this process, simulated time, and groups of tests for one worker."""

import gc
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from dr_ctl.cli.app import run
from dr_ctl.rpo.estimate import request as estimates
from dr_ctl.settings.loader import load
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.played import PlayedTwin
from tests.broker.driving import Ended, Operator, Stage
from tests.clocks import clock_of_this_machine
from tests.simulated import WIRE, nothing_real
from tests.timeouts import time_now

Command = Callable[..., Ended]
Operators = Callable[..., Operator]
# A Spark session takes longer than the rest of a move, so only the stories of one topology make an estimate.
ESTIMATED = ("artemis-mirror",)
# One worker runs all tests with such a marker and no other group: they share a pair of brokers and a Spark session.
TOGETHER = ("broker", "spark")

# No deadline: an example's time depends on the load of the machine.
settings.register_profile("side by side", deadline=None)
settings.load_profile("side by side")


own_clock_again = pytest.fixture(autouse=True)(clock_of_this_machine)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept", action="store_true", help="Write the results into the record and the scenarios.")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seconds of each folder, of all workers together."""
    spent = Counter[str]()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                spent["/".join(report.nodeid.split("/")[:2]).partition("::")[0]] += report.duration
    if len(spent) > 1:
        terminalreporter.section("seconds by folder")
        terminalreporter.write_line(", ".join(f"{folder} {seconds:.0f}" for folder, seconds in spent.most_common()))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        group = next((name for name in TOGETHER if item.get_closest_marker(name)), None)
        if group is not None and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_finish() -> None:
    """Exclude collected tests from garbage collection: they live until the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture
def system_of_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Simulated time, unless the test is marked to run in real time behind sockets, or starts brokers."""
    if any(request.node.get_closest_marker(name) for name in (WIRE, "broker", "spark")):
        yield
        gc.collect()  # or its finalizers would run within a simulated test
        return
    with nothing_real() as tried:
        yield
    assert tried == []


@pytest.fixture
def inside(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """The command line in this process, without Java, so that the estimate is a finding. An agent's last line is its
    document."""
    (tmp_path / "no-java").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "no-java"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("DR_CTL_STATE_DIR", str(tmp_path / "state"))
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def command(*words: str) -> Ended:
        capsys.readouterr()
        code = run([*words, "--json"], time_now())
        output = capsys.readouterr()
        is_agent = {"sync", "monitor"} & {*words}
        return Ended(code, json.loads(output.out.splitlines()[-1] if is_agent else output.out), output.err)

    yield command
    for number, handler in before.items():
        signal.signal(number, handler)


class Inside(Operator):
    """An operator whose commands run in this process."""

    command: Command

    def run(self, *words: str) -> Ended:
        return self.command(*words)


@pytest.fixture
def operators(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Operators:
    """Makes operators of brokers or a twin, whose commands run in this process."""
    path = os.environ["PATH"]
    command, without_java = request.getfixturevalue("inside"), os.environ["PATH"]
    monkeypatch.setenv("PATH", path)  # brokers need it

    def operator(stage: Stage, state: Path, settings: Path | None = None) -> Operator:
        operator = Inside(stage, state, settings)
        operator.command = command
        monkeypatch.setenv("DR_CTL_CONFIG", str(operator.settings))
        monkeypatch.setenv("DR_CTL_STATE_DIR", str(state))
        if not isinstance(stage, Lab):
            monkeypatch.setenv("PATH", without_java)
        elif load(operator.settings).settings.topology not in ESTIMATED:
            monkeypatch.setattr(estimates, "command", lambda: [sys.executable, "-c", ""])
        return operator

    return operator


@pytest.fixture
def dr_ctl(twin: PlayedTwin, inside: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
    return inside
