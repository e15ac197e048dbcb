"""The product against what the continuity plugin does by itself: late commands, late confirmations, deleted copies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.system import beside
from dr_ctl.topologies.common.view import Peer
from dr_ctl.topologies.continuity import copies, fence
from dr_ctl.topologies.continuity.patience import PluginPatience
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.continuity import beans
from dr_ctl_lab.twin.continuity.broker import ContinuityBroker
from dr_ctl_lab.twin.faults import Fault, FaultKind, When
from dr_ctl_lab.twin.kinds import CONTINUITY
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.patience import impatient
from tests.twin.matrix import ACCEPTED, Judge, at_rest, done, lose_and_return, put, quick, serving, unprocessed
from tests.twin.plugin_subject import DEACTIVATE, PluginSubject
from tests.twin.subject import until

TOPOLOGY = CONTINUITY


def plugin(twin: PlayedTwin, site: str) -> ContinuityBroker:
    broker = twin.host(site).broker
    assert isinstance(broker, ContinuityBroker)
    return broker


@pytest.mark.parametrize("rounds", [1, pytest.param(4, marks=pytest.mark.chaos)])
def test_commands_of_an_outage_activate_nobody(twin: PlayedTwin, dr_ctl: Command, rounds: int) -> None:
    """A site that activates itself whenever its peer says that it is there, and a peer that says so again and again."""
    for broker in twin.brokers(ContinuityBroker):
        broker.active_on_start = True
    lost, left = "london", "paris"
    for _ in range(rounds):
        twin.kill(lost)
        done(dr_ctl("failover", "--to", left, "--yes", *ACCEPTED))
        twin.kill(left)
        twin.start(left)
        done(dr_ctl("failover", "--to", left, "--yes", *ACCEPTED))
        assert len(plugin(twin, left).service.out.messages) > 1
        twin.start(lost)

        done(dr_ctl("reinstate", lost, "--yes"))

        assert serving(twin) == (left,)
        assert plugin(twin, left).serves
        assert not plugin(twin, lost).service.activated
        lost, left = left, lost


def test_a_command_that_comes_late_is_found_and_its_effect_taken_back(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, PluginPatience, watch_s=1.0)

    def tell() -> None:
        until(lambda: plugin(twin, "paris").serves)
        with twin.still():
            plugin(twin, "london").service.tell("deactivate-site")

    late = beside(tell, "late")
    ended = dr_ctl("swapover", "--to", "paris", "--yes")
    late.result()

    done(ended)
    assert plugin(twin, "paris").serves
    assert serving(twin) == ("paris",)
    activations = [each for each in twin.changes() if each.operation.startswith("activateSite(")]
    assert [each.site for each in activations] == ["paris", "paris"]


def test_a_site_that_is_about_to_deliver_is_not_activated_over_and_over(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each activation begins its wait for the other site anew, and tells that one to stop."""
    monkeypatch.setattr(fence, "WAITS_MS", dict.fromkeys(Peer, 1000))
    impatient(monkeypatch, PluginPatience, watch_s=1.0, watch_at_most_s=3.0)

    def obey() -> None:
        until(lambda: plugin(twin, "paris").serves)
        twin.cut()  # so the other site cannot say that it has nothing left
        with twin.still():
            plugin(twin, "paris").service.deactivate()

    late = beside(obey, "late")
    dr_ctl("swapover", "--to", "paris", "--yes")
    late.result()

    until(lambda: plugin(twin, "paris").serves)
    activations = [each for each in twin.changes() if each.operation.startswith("activateSite(")]
    assert [each.site for each in activations] == ["paris", "paris"]


def test_bridges_that_try_seldom_are_waited_for_and_taken_for_nothing_else(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beans, "INTERVAL", "3000")
    impatient(monkeypatch, PluginPatience, watch_intervals=1, watch_at_most_s=0.5)

    ended = done(dr_ctl("swapover", "--to", "paris", "--yes"))

    assert "which could undo the activation: 0" in ended.err
    assert serving(twin) == ("paris",)


def test_clients_are_out_until_they_are_greeted_and_what_was_held_back_is_delivered_later(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other site never says that it has nothing left."""
    london = plugin(twin, "london").service
    tell = london.tell

    def all_but_that(action: str, **more: str) -> None:
        if action != "notif-outflow-exhausted":
            tell(action, **more)

    monkeypatch.setattr(london, "tell", all_but_that)
    # Longer than the move itself may take on a machine that has much to do.
    monkeypatch.setitem(fence.WAITS_MS, Peer.DRAINED, 3000)

    ended = done(dr_ctl("swapover", "--to", "paris", "--yes"))

    assert ended.document["data"]["outage_s"] < fence.WAITS_MS[Peer.DRAINED] / 1000
    page = Path(ended.document["data"]["report"]).read_text(encoding="utf-8")
    assert "when paris let them in" in page
    assert "What was held back there is delivered since" in page


@pytest.mark.chaos
@pytest.mark.parametrize("late_s", [0.5, 1.5])
def test_confirmations_that_come_late_are_waited_for(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, late_s: float
) -> None:
    impatient(monkeypatch, PluginPatience, window_s=2.2, watch_s=3.0)
    for broker in twin.brokers(ContinuityBroker):
        broker.confirm_s = late_s
    with twin.load(100, work_ms=1) as traffic:
        traffic.wait_for(50)
        moved = dr_ctl("swapover", "--to", "paris", "--yes")
        traffic.wait_for(traffic.counts().sent + 50)
        verdict = traffic.stop()

    done(moved)
    assert verdict.clean
    assert (verdict.lost, verdict.duplicates) == ((), ())


def test_a_console_that_is_slower_than_the_first_look_of_a_drain_is_given_more_time(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, PluginPatience, look_s=0.05)
    put(twin, "london", "orders.in", 3)
    done(dr_ctl("fence", "london", "--yes"))
    twin.host("paris").faults.add(Fault(FaultKind.LATE, When(changing=False), times=None, seconds=0.3))

    done(dr_ctl("drain", "--to", "paris", "--yes"))


def test_what_is_compared_by_count_only_is_refused_or_accepted_by_name_and_said_so(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(twin, "london", "orders.in", 3)
    twin.wait_mirrored()
    monkeypatch.setattr(copies, "IDS_UP_TO", 2)

    refused = dr_ctl("swapover", "--to", "paris", "--yes")

    assert refused.code == 10, refused.document
    assert "DR-CONT-014" in [each["id"] for each in refused.document["findings"] if each["severity"] == "error"]
    assert not twin.changes()
    accept = ("--accept-difference", "orders.in=0")
    done(dr_ctl("fence", "london", "--yes"))
    told = [
        done(dr_ctl(*words, *accept)) for words in (("drain", "--to", "paris", "--yes"), ("verify", "--to", "paris"))
    ]
    for ended in told:
        [finding] = [each for each in ended.document["findings"] if each["id"] == "DR-CONT-014"]
        assert finding["text"].endswith("named: orders.in")
        assert "is lost" in finding["remedy"]


def test_equal_counts_hide_no_loss(twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that could not be named, as many without a copy as with one that should be gone."""
    put(twin, "london", "orders.in", 3)
    twin.wait_mirrored()
    london, paris = plugin(twin, "london"), plugin(twin, "paris")
    with twin.still():
        first, *_ = london.queues["orders.in"].live()
        first.headers = {key: text for key, text in first.headers.items() if key != "_AMQ_DUPL_ID"}
    done(dr_ctl("fence", "london", "--yes"))

    ended = dr_ctl("drain", "--to", "paris", "--timeout", "1s", "--yes")

    assert ended.code == 24, ended.document
    assert "a count does not show what would be lost" in ended.document["summary"]
    assert len(paris.flows["orders.in"].in_mirror.messages) == 3


def test_a_deep_queue_that_was_moved_once_is_moved_back(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "AT_ONCE", 5)
    put(twin, "london", "orders.in", 40)

    done(dr_ctl("swapover", "--to", "paris", "--yes"))
    done(dr_ctl("swapover", "--to", "london", "--yes"))

    pair = PluginSubject(twin)
    assert pair.depths_at("london", "orders.in", "orders.in.in.mirror") == [40, 0]


def ends_of(folder: Path, ended: Ended) -> dict[str, Any]:
    """The evidence of each step, by its verb."""
    lines = (folder / "state" / "runs" / ended.document["run"] / "journal.jsonl").read_text(encoding="utf-8")
    told = [json.loads(line) for line in lines.splitlines()]
    return {each["step"][3:]: each["evidence"] for each in told if each["kind"] == "step" and each["evidence"]}


def test_what_came_back_to_where_it_was_is_removed_while_clients_are_served(
    twin: PlayedTwin, dr_ctl: Command, tmp_path: Path
) -> None:
    put(twin, "london", "orders.in", 120)
    done(dr_ctl("swapover", "--to", "paris", "--yes"))
    twin.wait_mirrored()
    with twin.load(100, work_ms=1, queues=["orders.out"]) as traffic:
        traffic.wait_for(50)
        back = done(dr_ctl("swapover", "--to", "london", "--yes"))
        traffic.wait_for(traffic.counts().sent + 50)
        verdict = traffic.stop()

    ends = ends_of(tmp_path, back)
    assert ends["catch-up"]["removed"] == 120
    assert "orders.in" not in ends["drain"]["removed"]
    assert PluginSubject(twin).depths_at("london", "orders.in", "orders.in.in.mirror") == [120, 0]
    assert verdict.clean
    assert not verdict.redelivered


def test_what_was_answered_and_not_removed_is_not_said_to_be(twin: PlayedTwin, dr_ctl: Command, tmp_path: Path) -> None:
    put(twin, "london", "orders.in", 20)
    done(dr_ctl("swapover", "--to", "paris", "--yes"))
    twin.wait_mirrored()
    twin.host("london").faults.add(Fault(FaultKind.IDLE, When(operation="removeMessages"), times=2))

    back = done(dr_ctl("swapover", "--to", "london", "--yes"))

    ends = ends_of(tmp_path, back)
    assert ends["catch-up"]["removed"] == 0
    assert ends["drain"]["removed"] == {"orders.in": 20}


def test_what_a_return_brings_stands_in_the_result_that_its_journal_seals(
    twin: PlayedTwin, dr_ctl: Command, tmp_path: Path
) -> None:
    lose_and_return(twin, dr_ctl)

    told = done(dr_ctl("reinstate", "london", "--yes")).document

    sealed = json.loads((tmp_path / "state" / "runs" / told["run"] / "result.json").read_text(encoding="utf-8"))
    assert told["data"]["residue"] == {"messages": 1, "acknowledgements": 1, "duplicates_at_most": 1}
    assert sealed["data"]["residue"] == told["data"]["residue"]


def test_a_copy_that_the_plugin_deleted_refuses_the_move_and_is_named(twin: PlayedTwin, dr_ctl: Command) -> None:
    put(twin, "london", "orders.in", 3)
    pair = PluginSubject(twin)
    with pair.client("london") as client:
        client.subscribe("orders.in")
        held = client.message()
        client.confirmed("DISCONNECT")
    pair.staged("orders.in", 2)

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert ended.code == 20, ended.document
    [finding] = [each for each in ended.document["findings"] if each["id"] == "DR-CONT-013"]
    assert held.headers["_AMQ_DUPL_ID"] in finding["text"]
    assert serving(twin) == ("london",)
    assert pair.depths_at("london", "orders.in") == [3]


def without_its_store(twin: PlayedTwin, site: str) -> None:
    twin.kill(site)
    with twin.still():
        for queue in twin.host(site).broker.queues.values():
            queue.messages.clear()
    twin.start(site)


def test_copies_stay_where_the_site_that_is_left_came_back_without_its_store(twin: PlayedTwin, dr_ctl: Command) -> None:
    """Nobody consumed these messages, and their last copies wait at the other site."""
    put(twin, "london", "orders.in", 5)
    twin.wait_mirrored()
    without_its_store(twin, "london")
    pair = PluginSubject(twin)
    done(dr_ctl("activate", "london", "--yes"))

    refused = dr_ctl("swapover", "--to", "paris", "--yes")

    [finding] = [each for each in refused.document["findings"] if each["id"] == "DR-CONT-019"]
    assert (refused.code, serving(twin)) == (20, ("london",))
    assert pair.depths_at("paris", "orders.in.in.mirror") == [5]

    words = finding["remedy"].split()
    accepted = words[words.index("--accept-difference") :][:2]
    done(dr_ctl("swapover", "--to", "paris", "--yes", accepted[0], accepted[1].rstrip(":")))

    assert len(unprocessed(twin)) == 5
    assert pair.depths_at("paris", "orders.in") == [5]


def test_a_return_delivers_what_nothing_proves_and_says_so(twin: PlayedTwin, dr_ctl: Command) -> None:
    put(twin, "london", "orders.in", 5)
    twin.wait_mirrored()
    twin.kill("london")
    plugin(twin, "paris").full.add("orders.in")  # its queue takes nothing of what is staged
    done(dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED))
    with twin.still():
        for queue in twin.host("london").broker.queues.values():
            queue.messages.clear()
    twin.start("london")

    back = done(dr_ctl("reinstate", "london", "--yes"))

    assert "orders.in: 5" in next(each["text"] for each in back.document["findings"] if each["id"] == "DR-CONT-019")
    assert len(unprocessed(twin)) == 5


def test_both_sites_inactive_is_said_and_activate_repairs_it(twin: PlayedTwin, dr_ctl: Command) -> None:
    pair = PluginSubject(twin)
    pair.execute("london", pair.service("london"), DEACTIVATE)
    assert dr_ctl("status").document["summary"] == "no site serves"

    done(dr_ctl("activate", "london", "--yes"))

    assert plugin(twin, "london").serves
    assert dr_ctl("status").document["summary"] == "london serves"


MEETS = [
    ("paris", Fault(FaultKind.ERROR, When(operation="activateSite"), times=None), (20, 22)),
    ("paris", Fault(FaultKind.IDLE, When(operation="activateSite")), (0,)),
    ("london", Fault(FaultKind.IDLE, When(operation="deactivateSite"), times=None), (20,)),
]
MEETS_TOO = [
    ("paris", Fault(FaultKind.UNANSWERED, When(operation="activateSite")), (0,)),
    ("paris", Fault(FaultKind.DIES_AFTER, When(operation="activateSite"), back_after_s=0.2), (0, 20, 22, 23)),
    ("paris", Fault(FaultKind.DIES_BEFORE, When(operation="activateSite"), back_after_s=0.2), (0, 20, 22, 23)),
    ("london", Fault(FaultKind.RESET, When(operation="deactivateSite")), (20,)),
    ("london", Fault(FaultKind.UNANSWERED, When(operation="deactivateSite")), (0,)),
    ("london", Fault(FaultKind.DIES_AFTER, When(operation="deactivateSite"), back_after_s=0.2), (0, 20, 22, 23)),
]


@pytest.mark.parametrize(
    ("site", "fault", "codes"),
    [*MEETS, *(pytest.param(*each, marks=pytest.mark.chaos) for each in MEETS_TOO)],
    ids=lambda told: f"{told.when.operation} {told.kind.value}" if isinstance(told, Fault) else "",
)
def test_whatever_the_call_meets_that_opens_or_closes_a_site_its_end_is_said(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, site: str, fault: Fault, codes: tuple[int, ...]
) -> None:
    judge = Judge(twin, monkeypatch)
    before = at_rest(twin)
    twin.host(site).faults.add(fault)

    with quick(monkeypatch), monkeypatch.context() as patch:
        impatient(patch, activate_s=2.0)  # it is tried again after half a second
        ended = dr_ctl("swapover", "--to", "paris", "--yes")

    twin.host(site).faults.clear()
    until(lambda: all(twin.host(each).broker.alive for each in twin.sites))
    assert judge.twice == []
    assert ended.code in codes, ended.document
    match ended.code:
        case 0:
            assert (serving(twin), plugin(twin, "paris").serves) == (("paris",), True)
        case 20:
            assert (serving(twin), plugin(twin, "london").serves) == (("london",), True)
            assert fault.kind in (FaultKind.DIES_AFTER, FaultKind.DIES_BEFORE) or at_rest(twin) == before
        case 23:
            assert serving(twin) == ()
        case _:
            assert "look at" in ended.document["summary"], ended.document
