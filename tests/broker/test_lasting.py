"""A fence that outlasts a restart, on brokers whose listeners open at boot: the clients' role may do nothing there."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dr_ctl.stomp_io.client import ConnectionLost, probe
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, changed_settings, reset, until

pytestmark = [pytest.mark.broker, pytest.mark.deep]


@pytest.fixture
def boots_open(tmp_path: Path) -> Iterator[Lab]:
    def opened(xml: str) -> str:
        assert xml.count(";autoStart=false") == 1
        return xml.replace(";autoStart=false", "")

    # Both listeners open at boot: the one of the standby is closed before anything else.
    with Lab.up(tmp_path / "lab", serving=None, edit=opened) as lab:
        yield lab


def keeping_out(lab: Lab, folder: Path) -> Operator:
    def keep_out(options: dict[str, object]) -> None:
        for site in options["sites"].values():  # type: ignore[attr-defined]
            site["brokers"][0]["lasting_fence"] = {"roles": ["apps"]}

    return Operator(lab, folder / "state", changed_settings(lab, folder, keep_out))


@pytest.fixture
def operator(boots_open: Lab, tmp_path: Path) -> Operator:
    reset(boots_open)
    return keeping_out(boots_open, tmp_path)


def may_send(lab: Lab, site: str) -> bool:
    """Try it as a client does: connected, one durable message, its receipt."""
    place = lab.site(site)
    login_result, connection = probe(place.stomp, place.app, None, timeout_s=5, headers={})
    assert connection is not None, login_result
    try:
        options = {"destination": "orders.in", "destination-type": "ANYCAST", "persistent": "true", "receipt": "r"}
        connection.stomp.send_frame("SEND", options, "work")
        frames = []
        until(lambda: frames.extend(connection.receive(0.1)) or frames, why="an answer")  # type: ignore[func-returns-value]
        return any(frame.cmd == "RECEIPT" for frame in frames)
    except ConnectionLost as error:
        if "AMQ339011" not in str(error):
            raise
        return False
    finally:
        connection.close(politely=False)


def test_clients_that_find_a_restarted_site_open_may_do_nothing_there(boots_open: Lab, operator: Operator) -> None:
    lab = boots_open
    assert may_send(lab, "london")
    remote = operator.run("swapover", "--to", "paris", "--yes")
    assert remote.code == 0, remote.document
    assert "a restart does not let clients in" in remote.err
    assert may_send(lab, "paris")

    lab.kill("london")
    lab.start("london")

    until(lambda: not may_send(lab, "london"), why="its listener opens at boot, and the role is kept out")
    assert "DR-FENCE-004" in operator.run("validate").ids
    closed = operator.run("fence", "london", "--yes")
    assert closed.code == 0, closed.document
    lab.wait_mirrored()

    back = operator.run("swapover", "--to", "london", "--yes")

    assert back.code == 0, back.document
    assert may_send(lab, "london")
    assert operator.run("validate").document["data"]["fence"] == {"london": "lasting", "paris": "lasting"}


def test_a_monitor_opens_the_site_that_served_last_again_after_a_reboot(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab") as lab, lab.load(20.0) as traffic:
        operator = keeping_out(lab, tmp_path)
        assert operator.run("swapover", "--to", "paris", "--yes").code == 0
        note, watching = operator.state / "served.json", ("monitor", "--auto-unfence", "--auto-reinstate")
        monitor = operator.start(*watching)
        until(lambda: note.exists() and '"paris"' in note.read_text("utf-8"), why="the monitor sees paris serve")
        for rebooted, signum in ((("paris",), signal.SIGTERM), (("paris", "london"), signal.SIGKILL)):
            for site in rebooted:
                os.kill(lab.pid(site) or 0, signum)
            until(lambda gone=rebooted: not any(map(lab.pid, gone)), why="the brokers end")
            if signum is signal.SIGKILL:  # and the machine of the monitor with them
                monitor.kill()
                monitor.communicate()
                monitor = operator.start(*watching)
            for site in rebooted:
                lab.start(site)
            sent = traffic.counts().sent
            traffic.wait_for(sent + 20, within_s=120.0)  # the lock of a run that went down too runs out after 60 s
            assert not lab.admin("london").clients_open()
        monitor.send_signal(signal.SIGINT)
        _, err = monitor.communicate(timeout=60)
        verdict = traffic.stop()
        runs = operator.run("runs", "list").document["data"]["runs"]

    [*before, last] = [(run["operation"], run["outcome"]) for run in runs]
    assert before in ([("swapover", "ok"), ("unfence", outcome)] for outcome in ("ok", "unknown")), err  # it may be cut
    assert last == ("unfence", "ok"), err
    assert (verdict.lost, verdict.duplicates) == ((), ())
