"""What goes wrong in the middle of a move, on real brokers: undone to the start, or gone on with to the end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, recorded, send, state_of, until
from tests.broker.recorder import Recorder, Seen
from tests.lab.holding import HoldingConsumer

pytestmark = [pytest.mark.broker, pytest.mark.deep]


def at_the_fence(recorder: Recorder, act: Callable[[], tuple[int, str] | None]) -> None:
    """Act once, right before the call that closes the clients' door reaches the broker."""
    once = threading.Event()

    def before(changes: list[Seen]) -> tuple[int, str] | None:
        if any(seen.operation == "stop()" and "acceptors" in seen.bean for seen in changes) and not once.is_set():
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
    """An operator whose link is cut, with messages still to ship, at the moment when the clients' door closes."""
    with recorded(lab, folder) as (settings, recorders):

        def act() -> None:
            lab.cut(mode="hang")
            send(lab, "london", "orders.in", 5)

        at_the_fence(recorders["london"], act)
        yield Operator(lab, operator.state, settings)


def test_a_cut_link_during_the_drain_is_undone_in_time(lab: Lab, operator: Operator, tmp_path: Path) -> None:
    before = state_of(lab)

    with cut_at_the_fence(lab, operator, tmp_path / "recorded") as cut:
        ended = cut.run("swapover", "--to", "paris", "--yes", "--timeout", "4s")

    assert (ended.code, ended.document["outcome"]) == (24, "drain_timeout")
    assert ended.document["data"]["undone"] is True
    assert ended.document["data"]["pairs"] == [{"name": "orders-1", "serving": "london"}]
    lab.heal()
    lab.wait_mirrored()
    assert state_of(lab) == before
    assert operator.run("swapover", "--to", "paris", "--yes").code == 0
    assert lab.admin("paris").depth("orders.in") == 5


def test_a_target_that_dies_during_the_drain_costs_no_more_than_the_timeout(
    lab: Lab, operator: Operator, tmp_path: Path
) -> None:
    before = state_of(lab)

    with recorded(lab, tmp_path / "recorded") as (settings, recorders):
        at_the_fence(recorders["london"], lambda: lab.kill("paris"))
        ended = Operator(lab, operator.state, settings).run("swapover", "--to", "paris", "--yes", "--timeout", "2s")

    assert (ended.code, ended.document["outcome"]) == (24, "drain_timeout"), ended.document
    assert ended.document["data"]["pairs"] == [{"name": "orders-1", "serving": "london"}]
    assert ended.document["data"]["undone"] is True
    lab.start("paris")
    lab.wait_mirrored()
    assert state_of(lab) == before


def test_sigterm_during_the_drain_undoes_everything(lab: Lab, operator: Operator, tmp_path: Path) -> None:
    before = state_of(lab)

    with cut_at_the_fence(lab, operator, tmp_path / "recorded") as cut:
        process = cut.start("swapover", "--to", "paris", "--yes")
        until(lambda: drain_waits(operator))
        process.terminate()
        ended = cut.wait(process)

    assert (ended.code, ended.document["outcome"]) == (143, "interrupted")
    assert ended.document["data"]["undone"] is True
    assert state_of(lab) == before
    assert operator.run("resume", "--yes").code == 10


def killed_while_draining(lab: Lab, operator: Operator, folder: Path) -> None:
    with cut_at_the_fence(lab, operator, folder) as cut:
        process = cut.start("swapover", "--to", "paris", "--yes")
        until(lambda: drain_waits(operator))
        process.kill()
        process.communicate()


def killed_between_pause_and_fence(lab: Lab, operator: Operator, folder: Path) -> None:
    send(lab, "london", "orders.in", 5)
    with recorded(lab, folder) as (settings, recorders):
        started: list[subprocess.Popen[str]] = []

        def act() -> tuple[int, str]:
            os.kill(started[0].pid, signal.SIGKILL)
            return 500, "never forwarded"

        at_the_fence(recorders["london"], act)
        started.append(Operator(lab, operator.state, settings).start("swapover", "--to", "paris", "--yes"))
        started[0].communicate()


CRASHES = (killed_while_draining, killed_between_pause_and_fence)


@pytest.mark.parametrize("crash", CRASHES)
def test_resume_after_a_kill_ends_as_an_undisturbed_run(
    crash: Callable[[Lab, Operator, Path], None], lab: Lab, operator: Operator, tmp_path: Path
) -> None:
    before = state_of(lab)
    crash(lab, operator, tmp_path / "recorded")
    lab.heal()
    refused = operator.run("swapover", "--to", "paris", "--yes")
    assert (refused.code, refused.document["findings"][0]["id"]) == (10, "DR-RUN-003")
    assert operator.run("status").document["data"]["open_run"] == refused.document["run"]

    ended = operator.run("resume", "--yes")

    assert ended.code == 0, ended.document
    after = state_of(lab)
    assert after["london"]["orders-1"]["doors"] == {"clients": False}
    assert after["paris"]["orders-1"]["doors"] == {"clients": True}
    for site in ("london", "paris"):
        assert after[site]["orders-1"]["paused"] == before[site]["orders-1"]["paused"]
        assert after[site]["orders-1"]["link"] == before[site]["orders-1"]["link"]
    assert lab.admin("paris").depth("orders.in") == 5
    assert operator.run("resume", "--yes").code == 10


@pytest.mark.parametrize("crash", CRASHES)
def test_abort_after_a_kill_puts_back_what_was(
    crash: Callable[[Lab, Operator, Path], None], lab: Lab, operator: Operator, tmp_path: Path
) -> None:
    before = state_of(lab)
    crash(lab, operator, tmp_path / "recorded")

    ended = operator.run("abort", "--yes")

    assert ended.code == 0, ended.document
    assert ended.document["data"]["pairs"] == [{"name": "orders-1", "serving": "london"}]
    assert state_of(lab) == before
    lab.heal()
    assert operator.run("swapover", "--to", "paris", "--yes").code == 0


def test_a_consumer_that_does_not_finish_is_named_and_the_move_undone(lab: Lab, operator: Operator) -> None:
    before = state_of(lab)
    send(lab, "london", "orders.in", 7)

    with HoldingConsumer(lab.target(), "orders.in", client_id="slow-biller") as holding:
        holding.wait_for(7)
        ended = operator.run("swapover", "--to", "paris", "--yes")

    assert (ended.code, ended.document["outcome"]) == (20, "reverted")
    assert "orders.in" in ended.told
    assert "slow-biller" in ended.told
    assert state_of(lab) == before


def test_cut_in_flight_moves_and_says_how_many_come_again(lab: Lab, operator: Operator) -> None:
    send(lab, "london", "orders.in", 7)

    with HoldingConsumer(lab.target(), "orders.in", client_id="slow-biller") as holding:
        holding.wait_for(7)
        ended = operator.run("swapover", "--to", "paris", "--yes", "--cut-in-flight")

    assert ended.code == 0, ended.document
    assert "7 message(s) in delivery are cut and will come again" in ended.told
    # What the consumer took at paris meanwhile goes back into the queue when it has hung up, one after the other.
    until(lambda: lab.admin("paris").depth("orders.in") == 7)


def test_a_hanging_link_does_not_keep_clients_waiting(lab: Lab, operator: Operator) -> None:
    with lab.load(100) as load:
        load.wait_for(50)
        lab.cut("london", mode="accept")  # something between the sites accepts while the peer is down
        lab.kill("paris")
        until(lambda: not lab.admin("london").link_attached("paris"))
        lab.start("paris")
        lab.heal("paris")

        ended = operator.run("swapover", "--to", "paris", "--yes")
        load.wait_for(load.counts().sent + 50)
        verdict = load.stop()

    assert ended.code == 0, ended.document
    assert verdict.clean
    assert verdict.receive_gap.seconds < 5


def test_a_target_whose_port_is_taken_is_undone(lab: Lab, operator: Operator) -> None:
    before = state_of(lab)

    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", lab.site("paris").ports["clients"]))
        thief.listen()
        ended = operator.run("swapover", "--to", "paris", "--yes")

    assert (ended.code, ended.document["outcome"]) == (20, "reverted")
    assert "could not be opened" in ended.document["summary"]
    assert ended.document["data"]["pairs"] == [{"name": "orders-1", "serving": "london"}]
    assert state_of(lab) == before


def test_two_commands_at_once_one_is_told_to_wait(lab: Lab, operator: Operator, tmp_path: Path) -> None:
    with cut_at_the_fence(lab, operator, tmp_path / "recorded") as cut:
        process = cut.start("swapover", "--to", "paris", "--yes", "--timeout", "5s")
        until(lambda: drain_waits(operator))
        second = operator.run("swapover", "--to", "paris", "--yes")
        resume = operator.run("resume", "--yes")
        first = cut.wait(process)

    assert (second.code, second.document["outcome"]) == (13, "locked")
    assert resume.code == 13
    assert first.code == 24
