"""Eight pairs on a twin, each with clients of its own: one that will not open is told, never opened at both sites, and
finished by the same command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dr_ctl_lab.lab.traffic import Load
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.faults import Fault, FaultKind, When
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.patience import impatient
from tests.twin.matrix import Judge, done

PAIRS = tuple(f"orders-{number}" for number in range(1, 9))
SHUT = "orders-3"
RATE = 20


@pytest.fixture
def eight(dr_ctl: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlayedTwin]:
    del dr_ctl  # it names its own twin first
    with PlayedTwin.up(tmp_path / "eight", pairs=PAIRS) as twin:
        monkeypatch.setenv("DR_CTL_CONFIG", str(twin.settings_path))
        yield twin


def serving(ended: Ended) -> dict[str, str | None]:
    return {pair["name"]: pair["serving"] for pair in ended.document["data"]["pairs"]}


@pytest.mark.deep
@pytest.mark.parametrize("kind", [FaultKind.IDLE, FaultKind.DIES_BEFORE])
def test_one_that_stays_shut_is_told_and_finished_by_the_same_command(
    eight: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, kind: FaultKind
) -> None:
    impatient(monkeypatch, activate_s=2.0)
    judge = Judge(eight, monkeypatch)
    shut = eight.host("paris", SHUT)
    shut.faults.add(Fault(kind, When(operation="start"), times=None))
    with ExitStack() as stack:
        traffics: dict[str, Load] = {pair: stack.enter_context(eight.load(RATE, pair=pair)) for pair in PAIRS}
        for traffic in traffics.values():
            traffic.wait_for(5)

        incomplete = dr_ctl("swapover", "--to", "paris", "--yes")

        assert (incomplete.code, incomplete.document["outcome"]) == (21, "incomplete"), incomplete.document
        assert serving(incomplete) == {**dict.fromkeys(PAIRS, "paris"), SHUT: None}
        assert SHUT in incomplete.document["summary"]
        shut.faults.clear()
        eight.start("paris")
        assert serving(done(dr_ctl("swapover", "--to", "paris", "--yes"))) == dict.fromkeys(PAIRS, "paris")
        for traffic in traffics.values():
            traffic.wait_for(traffic.counts().sent + 5)
        verdicts = {pair: traffic.stop() for pair, traffic in traffics.items()}

    assert judge.twice == []
    assert [pair for pair, verdict in verdicts.items() if not verdict.clean] == []
