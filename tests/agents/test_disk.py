"""The monitor where the disk takes nothing: it goes on, says so once, and says when it is over."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dr_ctl.agents.monitor import Look, Monitor, shown
from dr_ctl.application.monitoring import Recorded
from dr_ctl.core.errors import EnvironmentFault
from dr_ctl.core.model import Role
from dr_ctl.settings.loader import load
from tests.agents.test_monitor import REFUSED, Ticking, Watched, on_disk
from tests.cli.conftest import Shell
from tests.rpo.files import full_disk

URLS = ("http://127.0.0.1:1/console/jolokia", "http://127.0.0.1:2/console/jolokia")
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, capsys)


def test_a_death_that_a_full_disk_does_not_take_is_on_disk_once_it_can(tmp_path: Path, shell: Shell) -> None:
    watched = Watched()
    monitor = Monitor(load(shell.settings(*URLS)), watched, Ticking(), every_s=5.0)
    monitor.sample()
    watched.view = REFUSED
    with full_disk():
        look = monitor.sample()
        assert look.trouble is not None
        assert look.waiting == 10
        assert not shown(monitor, look).well
        for _ in range(20):
            monitor.wait(None)
            monitor.sample()
        assert on_disk(tmp_path) == []
    for _ in range(2):
        monitor.wait(None)
        look = monitor.sample()

    assert (look.trouble, look.dropped) == (None, 0)
    assert shown(monitor, look).well
    monitor.close()
    assert on_disk(tmp_path) == ["serving", *["down"] * (monitor.looks - 1)]


def test_what_a_disk_does_not_take_at_the_end_either_is_said_to_be_lost(tmp_path: Path, shell: Shell) -> None:
    path = shell.settings(*URLS)
    (tmp_path / "history").write_text("a file where the history should be")

    ended = shell("--config", str(path), "--state-dir", str(shell.state), "monitor", "--for", "100ms", "--json")

    assert ended.code != 0
    [end] = [line for line in ended.out.splitlines() if '"schema"' in line]
    assert "row(s) are lost" in end


@dataclass
class Person:
    """Stands where the caller would."""

    said: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.said.append(text)


def test_a_trouble_is_said_once_and_so_is_its_end_with_what_it_cost() -> None:
    person = Person()
    recorded = Recorded(person)  # type: ignore[arg-type]
    for trouble, dropped in ((None, 0), ("full", 0), ("full", 5), (None, 5), ("full", 5), (None, 5)):
        recorded.tell(Look(AT, {"london": Role.SERVING}, {"london": 0}, None, trouble, 7, dropped))  # type: ignore[arg-type]

    assert [said.partition(";")[0] for said in person.said] == ["full", "the history is written again"] * 2
    assert "5 row(s) were dropped" in person.said[1]
    assert "nothing was lost" in person.said[3]
    assert [each.id for each in recorded.findings] == ["DR-MON-001"]


def test_a_history_that_nobody_can_write_ends_the_monitor_with_its_loss(tmp_path: Path, shell: Shell) -> None:
    monitor = Monitor(load(shell.settings(*URLS)), Watched(), Ticking())
    monitor.sample()

    with full_disk(), pytest.raises(EnvironmentFault, match=r"6 row\(s\) are lost"):
        monitor.close()
