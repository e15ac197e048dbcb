"""The lock on real brokers: commands that start together, runs that died or froze, and what others see of them."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dr_ctl.core.clock import SystemClock
from dr_ctl.core.patience import Patience
from dr_ctl.engine.lease import LOCK, LockDocument
from dr_ctl.settings.loader import load
from dr_ctl.topologies.registry import opened
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Ended, Operator, state_of, until
from tests.broker.test_interruptions import cut_at_the_fence, drain_waits

pytestmark = [pytest.mark.broker, pytest.mark.deep]

ROUNDS = 10
OTHER_SITE = {"london": "paris", "paris": "london"}


@contextmanager
def watched(lab: Lab) -> Iterator[list[str]]:
    """Look again and again whether both sites let clients in; gives what was seen."""
    both: list[str] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            if all(lab.admin(site).clients_open() for site in OTHER_SITE):
                both.append("both sites let clients in")

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield both
    finally:
        over.set()
        thread.join()


def serving(lab: Lab) -> list[str]:
    return [site for site in OTHER_SITE if lab.admin(site).clients_open()]


def runs(operator: Operator) -> set[str]:
    """The runs that sent a call."""
    journals = operator.state.glob("runs/*/journal.jsonl")
    return {path.parent.name for path in journals if '"kind":"intent"' in path.read_text(encoding="utf-8")}


def together(first: Operator, second: Operator, targets: tuple[str, str]) -> list[Ended]:
    started = [each.start("swapover", "--to", to, "--yes") for each, to in zip((first, second), targets, strict=True)]
    return [each.wait(process) for each, process in zip((first, second), started, strict=True)]


def test_of_two_that_start_together_in_one_direction_exactly_one_moves(
    lab: Lab, operator: Operator, tmp_path: Path
) -> None:
    second = Operator(lab, tmp_path / "second")

    with watched(lab) as both:
        for number in range(ROUNDS):
            target = ("paris", "london")[number % 2]
            before = len(runs(operator)) + len(runs(second))

            ended = together(operator, second, (target, target))

            codes = sorted(each.code for each in ended)
            assert codes in ([0, 0], [0, 10], [0, 13]), [each.document for each in ended]
            assert len(runs(operator)) + len(runs(second)) == before + 1
            assert serving(lab) == [target]

    assert both == []


def test_of_two_that_start_together_in_opposite_directions_none_meets_the_other(
    lab: Lab, operator: Operator, tmp_path: Path
) -> None:
    second = Operator(lab, tmp_path / "second")

    with watched(lab) as both:
        for _ in range(ROUNDS):
            here = serving(lab)[0]

            ended = together(operator, second, (OTHER_SITE[here], here))

            # One moves; the other finds its wish fulfilled, or the lock held, or moves back once the first has ended.
            assert {each.code for each in ended} <= {0, 10, 13}, [each.document for each in ended]
            assert 0 in {each.code for each in ended}
            assert len(serving(lab)) == 1

    assert both == []


@contextmanager
def draining(lab: Lab, operator: Operator, folder: Path) -> Iterator[int]:
    """A run that waits behind its fence, because the link is cut; gives its process."""
    with cut_at_the_fence(lab, operator, folder) as cut:
        process = cut.start("swapover", "--to", "paris", "--yes")
        until(lambda: drain_waits(operator))
        yield process.pid
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_status_on_another_host_says_who_holds_it_and_what_was_paused(
    lab: Lab, operator: Operator, tmp_path: Path
) -> None:
    with draining(lab, operator, tmp_path / "recorded") as pid:
        shown = Operator(lab, tmp_path / "elsewhere").run("status").document
        refused = Operator(lab, tmp_path / "elsewhere").run("swapover", "--to", "paris", "--yes")

    run = next((operator.state / "runs").iterdir()).name
    locks = {told["site"]: told for told in shown["data"]["locks"]}
    held = {site: (told["run"], told["pid"], told["live"]) for site, told in locks.items()}
    assert held == {"london": (run, pid, True), "paris": (run, pid, True)}
    assert set(lab.queues) <= set(locks["london"]["paused"][run])
    assert "DR-LOCK-003" in {finding["id"] for finding in shown["findings"]}
    assert (refused.code, run in refused.document["summary"]) == (13, True)


@pytest.mark.parametrize("verb", ["resume", "abort"])
def test_after_a_kill_the_same_state_goes_on_at_once_and_a_copy_only_by_breaking_it(
    lab: Lab, operator: Operator, tmp_path: Path, verb: str
) -> None:
    before = state_of(lab)
    with draining(lab, operator, tmp_path / "recorded"):
        pass  # killed
    lab.heal()
    shutil.copytree(operator.state, tmp_path / "copy")
    copy = Operator(lab, tmp_path / "copy")

    kept_out = copy.run(verb, "--yes")
    by_whom = Operator(lab, tmp_path / "elsewhere").run("swapover", "--to", "paris", "--yes")
    ended = operator.run(verb, "--yes")

    assert (kept_out.code, by_whom.code) == (13, 13)
    assert ended.code == 0, ended.document
    assert serving(lab) == (["paris"] if verb == "resume" else ["london"])
    if verb == "abort":
        assert state_of(lab) == before
    assert operator.run("status").document["data"]["locks"] == []


@pytest.mark.parametrize("ran_out", [True, False])
def test_another_state_takes_over_by_breaking_it_or_once_it_ran_out(
    lab: Lab, operator: Operator, tmp_path: Path, *, ran_out: bool
) -> None:
    before = state_of(lab)
    with draining(lab, operator, tmp_path / "recorded"):
        pass  # killed
    lab.heal()
    shutil.copytree(operator.state, tmp_path / "copy")
    if ran_out:
        let_run_out(lab)

    words = [] if ran_out else ["--break-lock", "--reason", "its host is gone"]
    ended = Operator(lab, tmp_path / "copy").run("abort", "--yes", *words)

    assert ended.code == 0, ended.document
    assert state_of(lab) == before


def let_run_out(lab: Lab) -> None:
    """Write every lock anew, as one whose time is over."""
    with closing(opened(load(lab.settings_path), SystemClock(), Patience(), lab.directory)) as topology:
        topology.observe()
        for store in topology.stores():
            with closing(store):
                now_ms, texts = store.read(LOCK)
                for epoch, text in texts:
                    old = replace(LockDocument.of_text(epoch, text), expires_ms=now_ms)
                    store.update(LOCK, epoch, old.to_text())


def test_a_frozen_run_whose_lock_was_broken_changes_nothing_when_it_wakes(
    lab: Lab, operator: Operator, tmp_path: Path
) -> None:
    before = state_of(lab)
    with cut_at_the_fence(lab, operator, tmp_path / "recorded") as cut, watched(lab) as both:
        process = cut.start("swapover", "--to", "paris", "--yes")
        until(lambda: drain_waits(operator))
        os.kill(process.pid, signal.SIGSTOP)
        shutil.copytree(operator.state, tmp_path / "copy")
        thief = Operator(lab, tmp_path / "copy").run("abort", "--yes", "--break-lock", "--reason", "it is frozen")
        after_break = state_of(lab)
        lab.heal()
        os.kill(process.pid, signal.SIGCONT)
        ended = cut.wait(process)

    assert thief.code == 0, thief.document
    assert after_break == before
    assert ended.code == 20, ended.document
    assert state_of(lab) == before
    assert serving(lab) == ["london"]
    assert both == []
