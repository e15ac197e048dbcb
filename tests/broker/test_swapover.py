"""The planned move on real brokers, where it is disturbed: undone, kept out, or gone on with."""

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Ended, Operator, recorded, send, state_of, until
from tests.broker.recorder import Recorder, Snapshot

pytestmark = [pytest.mark.broker, pytest.mark.deep]
SWAPOVER = ("swapover", "--to", "paris", "--yes")


def at_the_fence(recorder: Recorder, act: Callable[[], tuple[int, str] | None]) -> None:
    """Act once, right before the call that closes the clients' listener reaches the broker."""
    once = threading.Event()

    def before(changes: list[Snapshot]) -> tuple[int, str] | None:
        if (
            any(snapshot.operation == "stop()" and "acceptors" in snapshot.bean for snapshot in changes)
            and not once.is_set()
        ):
            once.set()
            return act()
        return None

    recorder.before = before


def drain_waits(operator: Operator) -> bool:
    journals = list(operator.state.glob("runs/*/journal.jsonl"))
    return bool(journals) and any(
        entry["kind"] == "sample" and entry["step"] == "07-drain" for entry in operator.journal()
    )


@contextmanager
def cut_at_the_fence(lab: Lab, operator: Operator, folder: Path) -> Iterator[Operator]:
    """An operator whose link is cut, with messages still to ship, at the moment when the clients' listener closes."""
    with recorded(lab, folder) as (settings, recorders):

        def act() -> None:
            lab.cut(mode="hang")
            send(lab, "london", "orders.in", 5)

        at_the_fence(recorders["london"], act)
        yield Operator(lab, operator.state, settings)


@contextmanager
def draining(lab: Lab, operator: Operator, folder: Path) -> Iterator[tuple[Operator, subprocess.Popen[str]]]:
    """A run that waits behind its fence, because the link is cut; killed where it is still there."""
    with cut_at_the_fence(lab, operator, folder) as cut:
        process = cut.start(*SWAPOVER)
        until(lambda: drain_waits(operator))
        yield cut, process
        if process.poll() is None:
            process.kill()
            process.communicate()


def times_out(lab: Lab, operator: Operator, folder: Path) -> Ended:
    with cut_at_the_fence(lab, operator, folder) as cut:
        return cut.run(*SWAPOVER, "--timeout", "4s")


def loses_its_target(lab: Lab, operator: Operator, folder: Path) -> Ended:
    with recorded(lab, folder) as (settings, recorders):
        at_the_fence(recorders["london"], lambda: lab.kill("paris"))
        return Operator(lab, operator.state, settings).run(*SWAPOVER, "--timeout", "2s")


def finds_the_port_taken(lab: Lab, operator: Operator, folder: Path) -> Ended:
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", lab.site("paris").ports["clients"]))
        thief.listen()
        return operator.run(*SWAPOVER)


@pytest.mark.parametrize(
    ("run", "code", "outcome", "words"),
    [
        (times_out, 24, "drain_timeout", ""),
        (loses_its_target, 24, "drain_timeout", ""),
        (finds_the_port_taken, 20, "reverted", "could not be opened"),
    ],
)
def test_what_cannot_be_finished_is_undone(
    run: Callable[[Lab, Operator, Path], Ended],
    code: int,
    outcome: str,
    words: str,
    lab: Lab,
    operator: Operator,
    tmp_path: Path,
) -> None:
    before = state_of(lab)

    ended = run(lab, operator, tmp_path / "recorded")

    assert (ended.code, ended.document["outcome"]) == (code, outcome), ended.document
    assert words in ended.told, ended.told
    assert ended.document["data"]["pairs"] == [{"name": "orders-1", "serving": "london"}]
    assert code == 20 or ended.document["data"]["undone"] is True
    lab.heal()
    lab.start("paris")
    lab.wait_mirrored()
    assert state_of(lab) == before
    assert operator.run(*SWAPOVER).code == 0


def test_a_hanging_link_does_not_keep_clients_waiting(lab: Lab, operator: Operator) -> None:
    with lab.load(100) as load:
        load.wait_for(50)
        lab.cut("london", mode="accept")  # something between the sites accepts while the peer is down
        lab.kill("paris")
        until(lambda: not lab.admin("london").link_attached("paris"))
        lab.start("paris")
        lab.heal("paris")

        ended = operator.run(*SWAPOVER)
        load.wait_for(load.counts().sent + 50)
        verdict = load.stop()

    assert ended.code == 0, ended.document
    assert verdict.clean
    assert verdict.receive_gap.seconds < 5


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


def test_a_frozen_run_whose_lock_was_broken_changes_nothing(lab: Lab, operator: Operator, tmp_path: Path) -> None:
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
