"""The lock on real brokers: runs that died or froze, and what others see of them."""

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
from tests.broker.driving import Operator, state_of
from tests.broker.test_interruptions import draining

pytestmark = [pytest.mark.broker, pytest.mark.deep]

SITES = ("london", "paris")


@contextmanager
def watched(lab: Lab) -> Iterator[list[str]]:
    """Look again and again whether both sites let clients in; gives what was seen."""
    both: list[str] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            if all(lab.admin(site).clients_open() for site in SITES):
                both.append("both sites let clients in")

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield both
    finally:
        over.set()
        thread.join()


def serving(lab: Lab) -> list[str]:
    return [site for site in SITES if lab.admin(site).clients_open()]


def test_after_a_kill_a_copy_of_its_state_goes_on_only_once_the_lock_ran_out(
    lab: Lab, operator: Operator, tmp_path: Path
) -> None:
    before = state_of(lab)
    with draining(lab, operator, tmp_path / "recorded"):
        pass  # killed
    lab.heal()
    shutil.copytree(operator.state, tmp_path / "copy")
    copy = Operator(lab, tmp_path / "copy")

    kept_out = copy.run("abort", "--yes")
    let_run_out(lab)
    ended = copy.run("abort", "--yes")

    assert (kept_out.code, ended.code) == (13, 0), ended.document
    assert state_of(lab) == before
    assert operator.run("status").document["data"]["locks"] == []


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
    with draining(lab, operator, tmp_path / "recorded") as (cut, process), watched(lab) as both:
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
