"""Workloads around a mirrored pair, case by case: what is shown of them, what fails, in which order they are called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dr_ctl.engine.journal import Journal
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.twin.matrix import put, serving
from tests.twin.test_workloads import Played, at

BILLING, MAILER = "billing", "mailer"
TO_PARIS = ("swapover", "--to", "paris", "--yes")


@pytest.fixture
def works(tmp_path: Path, twin: PlayedTwin) -> Played:
    """At both sites a billing, which is a singleton, and a mailer, which is none; those of London run."""
    return Played(tmp_path / "beside", twin, singletons=(BILLING,))


def ids(ended: Ended) -> list[str]:
    return [each["id"] for each in ended.document["findings"] if each["id"].startswith("DR-WORK")]


def test_one_that_was_started_again_keeps_the_gate_shut(twin: PlayedTwin, works: Played, dr_ctl: Command) -> None:
    """Something else starts it while the source is drained."""
    settings = twin.settings_path
    told = settings.read_text(encoding="utf-8").rstrip().removesuffix("}")
    hooks = '"runbooks": "./runbooks", "hooks": {"wake": {"run": ["./wake"]}}'
    settings.write_text(f"{told}, {hooks}}}\n", encoding="utf-8")
    book = (Path(__file__).parents[2] / "runbooks" / "swapover.yaml").read_text(encoding="utf-8")
    folder = settings.parent / "runbooks"
    folder.mkdir()
    (folder / "swapover.yaml").write_text(book.replace("  - verify:", "  - hook: wake\n  - verify:"), encoding="utf-8")
    wake = settings.parent / "wake"
    state = works.work("london", MAILER).folder / "state.now"
    wake.write_text(f'#!/bin/sh\necho running > "{state}"\n', encoding="utf-8")
    wake.chmod(0o700)

    ended = dr_ctl(*TO_PARIS)

    assert (ended.code, ids(ended)) == (20, ["DR-WORK-008"]), ended.document
    assert (works.running, serving(twin)) == (at("london"), ("london",))


def test_an_undo_starts_nothing_beside_a_site_that_somebody_opened(
    twin: PlayedTwin, works: Played, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    intents = Journal.intents

    def opening(self: Journal, step: PlannedStep, calls: Sequence[Call]) -> list[int]:
        if step.verb == "fence":
            twin.cut("london", mode="hang")
            put(twin, "london", "orders.in", 1)
            twin.open_clients("paris")
        return intents(self, step, calls)

    monkeypatch.setattr(Journal, "intents", opening)

    ended = dr_ctl(*TO_PARIS, "--timeout", "300ms")

    assert ended.code not in (0, 20, 24), ended.document
    assert (works.running, serving(twin)) == ([], ("paris",))
    assert "billing; mailer not started at london" in ended.document["summary"]


@pytest.mark.parametrize("topology", [BRIDGES])
def test_with_a_part_of_a_site_what_belongs_to_all_is_not_asked(
    tmp_path: Path, twin: PlayedTwin, dr_ctl: Command
) -> None:
    works = Played(tmp_path / "beside", twin, mailer=("orders.in",))
    works.work("london", BILLING).switch("state.broken")

    ended = dr_ctl(*TO_PARIS, "--queues", "orders.in")

    assert (ended.code, works.work("paris", MAILER).runs) == (0, True), ended.document
