"""Moves on real brokers, where they are disturbed: undone, kept out, or gone on with; what speaks against one, a full
disk too, is said before the first call, with its remedy; and what the stories do not meet of a site that is lost and
returns."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dr_ctl_lab.lab import distribution
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.twin.kinds import BROKERSYNC, MIRROR
from tests.broker.driving import Ended, Operator, execute, on_queue, recorded, send, state_of, until
from tests.broker.recorder import Recorder, Snapshot
from tests.twin.matrix import ACCEPTED

pytestmark = [pytest.mark.broker, pytest.mark.deep]
SWAPOVER = ("swapover", "--to", "paris", "--yes")


def at_the_fence(recorder: Recorder, act: Callable[[], tuple[int, str] | None]) -> None:
    """Act once, right before the call that closes the clients' listener reaches the broker."""
    once = threading.Event()

    def before(changes: list[Snapshot]) -> tuple[int, str] | None:
        closes = any(snapshot.operation == "stop()" and "acceptors" in snapshot.bean for snapshot in changes)
        if closes and not once.is_set():
            once.set()
            return act()
        return None

    recorder.before = before


def drain_waits(operator: Operator) -> bool:
    begun = operator.journal() if [*operator.state.glob("runs/*/journal.jsonl")] else []
    return any(entry["kind"] == "sample" and entry["step"] == "07-drain" for entry in begun)


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


def test_a_move_waits_for_its_moment_under_the_lock_and_no_closed_output_ends_that(
    lab: Lab, operator: Operator, tmp_path: Path
) -> None:
    before, other = state_of(lab), Operator(lab, tmp_path / "another")

    def waiting(at: str) -> subprocess.Popen[str]:
        process = operator.start(*SWAPOVER, "--at", at)
        assert process.stderr is not None
        until(lambda: "waiting for" in process.stderr.readline(), why="it waits")  # type: ignore[union-attr]
        return process

    stopped = waiting("10m")
    stopped.send_signal(signal.SIGINT)
    ended = operator.wait(stopped)
    assert (ended.code, state_of(lab)) == (130, before)

    process = waiting("25s")
    process.send_signal(signal.SIGHUP)
    assert process.stderr is not None
    assert process.stdout is not None
    process.stderr.close()
    seen, refused = other.run("status"), other.run("failover", "--to", "paris", "--yes", *ACCEPTED)
    document = json.loads(process.stdout.read())

    assert "planned for" in seen.finding("DR-LOCK-003")["text"]
    assert (refused.code, f"`kill {process.pid}` ends it" in refused.told) == (13, True)
    assert (process.wait(60), document["summary"].split(";")[0]) == (0, "moved from london to paris")
    assert [run["outcome"] for run in operator.run("runs", "list").document["data"]["runs"]] == ["ok"]


def test_a_prepared_transaction_refuses_a_move_before_the_first_call(lab: Lab, operator: Operator) -> None:
    site = lab.site("london")
    address = f"tcp://127.0.0.1:{site.ports['clients']}"
    source = Path(__file__).parent / "Prepared.java"
    words = ["java", "-cp", f"{distribution.obtain()}/lib/*", str(source), address, site.app.user, site.app.password]
    subprocess.run([*words, "orders.in"], check=True, timeout=60, capture_output=True)
    before = state_of(lab)

    ended = operator.run(*SWAPOVER)

    after, items = state_of(lab), execute(lab, "london", "", "listPreparedTransactionDetailsAsJSON()")
    for load in json.loads(items):
        execute(lab, "london", "", "rollbackPreparedTransaction(java.lang.String)", load["xid_as_base64"])
    assert (ended.code, ended.document["outcome"]) == (10, "precheck_failed"), ended.document
    named = ended.finding("DR-TX-001")
    assert (named["severity"], bool(named["remedy"])) == ("error", True)
    assert all(word in named["text"] for word in ("london", "1 prepared transaction")), named["text"]
    assert not list(operator.state.glob("runs/*"))
    assert after == before


LIMIT = "DR-LIMIT-001"


def full_at_paris(xml: str) -> str:
    """Give the broker at Paris less disk, or less store, than it takes already."""
    if re.search(r"<name>paris|brokerName=\"paris", xml) is None:
        return xml
    small = re.sub(r"<max-disk-usage>\d+<", "<max-disk-usage>1<", xml)
    small = re.sub(r"<storeUsage limit=\"[^\"]*\"", '<storeUsage limit="1 kb"', small)
    assert small != xml
    return small


@pytest.mark.parametrize(
    ("topology", "text"),
    [(MIRROR, "over its max-disk-usage of 1 %: no client can send"), (BROKERSYNC, "% of its storeUsage: all who send")],
)
def test_a_full_disk_refuses_a_move_and_is_told_of_a_failover(tmp_path: Path, topology: str, text: str) -> None:
    with Lab.up(tmp_path / "lab", topology=topology, edit=full_at_paris) as lab:
        operator = Operator(lab, tmp_path / "state")
        refused = operator.run("swapover", "--to", "paris", "--yes")
        lab.kill("london")
        ended = operator.run("failover", "--to", "paris", "--yes", *ACCEPTED)
        checked = operator.run("check")

    assert refused.code == 10, refused.document
    assert text in refused.texts(LIMIT)[0]
    assert text in ended.texts(LIMIT)[0]
    if topology == MIRROR:
        assert ended.code == 21, ended.document
        assert "DR-PROBE-003" in ended.ids
        assert (checked.code, text in checked.document["summary"]) == (2, True)


def test_no_move_begins_before_the_target_has_measured_its_disk(tmp_path: Path) -> None:
    """A broker says that none of its disk is taken until its first scan."""

    def seldom(xml: str) -> str:
        return re.sub(r"<disk-scan-period>\d+<", "<disk-scan-period>600000<", xml)

    with Lab.up(tmp_path / "lab", topology=MIRROR, edit=seldom) as lab:
        refused = Operator(lab, tmp_path / "state").run("swapover", "--to", "paris", "--yes")

    assert (refused.code, "has not measured its disk" in refused.texts(LIMIT)[0]) == (10, True)


FAILOVER = ("failover", "--to", "paris", "--yes", *ACCEPTED)


def lost_with_three(lab: Lab, operator: Operator) -> None:
    send(lab, "london", "orders.in", 3)
    lab.wait_mirrored()
    until(lambda: lab.admin("paris").depth("orders.in") == 3)
    lab.kill("london")
    assert operator.run(*FAILOVER).code == 0


def lying(lab: Lab) -> list[int]:
    return [lab.admin(site).depth("orders.in") for site in ("london", "paris")]


def test_a_restarted_survivor_serves_on_and_a_site_that_is_back_open_is_closed(lab: Lab, operator: Operator) -> None:
    lost_with_three(lab, operator)
    lab.kill("paris")
    lab.start("paris")
    assert operator.run(*FAILOVER).code == 0
    owed = operator.run("status").document["debts"]

    lab.start("london")
    lab.open_clients("london")
    ended = operator.run("reinstate", "london", "--yes")

    assert {(debt["kind"], debt["site"]) for debt in owed} == {("fence", "london"), ("quarantine", "london")}
    assert ended.code == 0, ended.document
    assert "DR-RETURN-002" in ended.told
    assert ended.document["data"]["pairs"] == [{"name": "orders-1", "serving": "paris"}]
    assert ended.document["debts"] == []
    assert operator.run("reinstate", "london", "--yes").document["summary"].startswith("london is reinstated already")
    assert lying(lab) == [3, 3]


def test_what_nothing_explains_is_taken_out_and_kept(lab: Lab, operator: Operator) -> None:
    lost_with_three(lab, operator)
    lab.start("london")
    send(lab, "london", "orders.in", 2)
    until(lambda: lab.admin("london").depth("$ACTIVEMQ_ARTEMIS_MIRROR_paris") >= 2)
    on_queue(lab, "london", "$ACTIVEMQ_ARTEMIS_MIRROR_paris", "removeAllMessages()")  # they will never be shipped

    ended = operator.run("reinstate", "london", "--yes")
    status = operator.run("status")

    name = "dr-ctl.quarantine.london.orders.in"
    assert ended.code == 0, ended.document
    reconciled = [entry for entry in operator.journal() if (entry["step"] or "").endswith("-reconcile")][-1]["evidence"]
    assert reconciled["quarantined"] == {name: 2}
    assert len(reconciled["left_over_ids"]["orders.in"]["london"]) == 2
    assert lying(lab) == [3, 3]
    assert lab.admin("london").depth(name) == 2
    assert name not in lab.admin("paris").depths()
    assert "DR-RECONCILE-002" in ended.told
    assert "DR-RECONCILE-003" in status.told
