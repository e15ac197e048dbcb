"""Messages that are staged and that nobody had yet: no move with the continuity plugin destroys one, at either site."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dr_ctl.engine import runbook
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.continuity.broker import ContinuityBroker
from dr_ctl_lab.twin.kinds import CONTINUITY
from dr_ctl_lab.twin.messages import Reason
from dr_ctl_lab.twin.parts import Acceptor
from tests.conftest import Command
from tests.patience import impatient
from tests.twin.matrix import OPERATIONS, at_rest, done, nothing, put, quick, serving, take, unprocessed
from tests.twin.subject import until

TOPOLOGY = CONTINUITY

ORDERS = "orders.in"


def plugin(twin: PlayedTwin, site: str) -> ContinuityBroker:
    broker = twin.host(site).broker
    assert isinstance(broker, ContinuityBroker)
    return broker


def delivers_again(twin: PlayedTwin, site: str) -> None:
    """There is room again."""
    broker = plugin(twin, site)
    with twin.still():
        broker.full.clear()
        broker.changed.notify_all()


def staged(twin: PlayedTwin, site: str) -> int:
    return len(plugin(twin, site).flows[ORDERS].in_mirror.messages)


def moved_to_a_full_address(twin: PlayedTwin, dr_ctl: Command) -> set[str]:
    """London serves, and its address takes nothing of what was written at Paris; who the messages are."""
    done(dr_ctl("swapover", "--to", "paris", "--yes"))
    put(twin, "paris", ORDERS, 10)
    twin.wait_mirrored()
    plugin(twin, "london").full.add(ORDERS)
    moved = done(dr_ctl("swapover", "--to", "london", "--yes"))
    assert staged(twin, "london") == 10
    [told] = [each["text"] for each in moved.document["findings"] if each["id"] == "DR-CONT-018"]
    assert told == "staged at london and not taken by its queues: orders.in: 10"
    return unprocessed(twin)


def brief(folder: Path) -> Path:
    """The runbooks with a catch-up that does not wait for long, but for longer than what is stuck is given."""
    mine = folder / "runbooks"
    mine.mkdir()
    for path in runbook.files(runbook.shipped()):
        (mine / path.name).write_text(path.read_text().replace("{within: 1m}", "{within: 1s}"))
    return mine


def test_an_address_that_takes_nothing_is_no_queue_that_has_it_already(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    had = moved_to_a_full_address(twin, dr_ctl)
    swapover = OPERATIONS["swapover"].words

    with monkeypatch.context() as patch:
        mine = brief(tmp_path)
        patch.setattr(runbook, "shipped", lambda: mine)
        refused = dr_ctl(*swapover, "--yes")

    assert refused.code == 10, refused.document
    assert "london still delivers 10 staged message(s) of orders.in" in refused.document["summary"]
    [told] = [each["text"] for each in refused.document["findings"] if each["id"] == "DR-CONT-017"]
    assert told == "staged at london and not taken by its queues: orders.in: 10"
    assert serving(twin) == ("london",)
    assert unprocessed(twin) == had

    delivers_again(twin, "london")
    done(dr_ctl(*swapover, "--yes"))
    assert unprocessed(twin) == had


def test_step_by_step_what_was_never_delivered_refuses_the_drain_and_is_named(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    had = moved_to_a_full_address(twin, dr_ctl)
    done(dr_ctl("fence", "london", "--yes"))

    ended = dr_ctl("drain", "--to", "paris", "--yes")

    assert ended.code == 10, ended.document
    [finding] = [each for each in ended.document["findings"] if each["id"] == "DR-CONT-017"]
    assert "staged at london and never delivered there: orders.in: 10" in finding["text"]
    assert dr_ctl("verify", "--to", "paris").code != 0
    assert unprocessed(twin) == had

    delivers_again(twin, "london")
    done(dr_ctl("activate", "london", "--yes"))
    until(lambda: staged(twin, "london") == 0)
    twin.wait_mirrored()
    done(dr_ctl("swapover", "--to", "paris", "--yes"))
    assert unprocessed(twin) == had


def test_what_arrives_behind_the_fence_was_never_delivered_either(twin: PlayedTwin, dr_ctl: Command) -> None:
    """A person moves the service with the plugin's console while the link is cut."""
    done(dr_ctl("swapover", "--to", "paris", "--yes"))
    twin.cut()
    until(lambda: not plugin(twin, "paris").attached)
    put(twin, "paris", ORDERS, 30)
    with twin.still():
        plugin(twin, "paris").keep_clients_out()
        plugin(twin, "london").service.activate(1)
    until(lambda: plugin(twin, "london").serves)
    done(dr_ctl("fence", "london", "--yes"))
    twin.heal()
    twin.wait_mirrored()
    had = unprocessed(twin)

    ended = dr_ctl("drain", "--to", "paris", "--yes")

    assert ended.code == 10, ended.document
    assert "DR-CONT-017" in [each["id"] for each in ended.document["findings"]]
    assert unprocessed(twin) == had
    assert len(had) == 30


def had_and_staged_again(twin: PlayedTwin) -> None:
    """What clients of London have consumed comes back to be delivered there once more, and Paris keeps its copies: what
    a waiting site does that is started again while it holds messages."""
    put(twin, "london", ORDERS, 3)
    twin.wait_mirrored()
    london = plugin(twin, "london")
    with twin.still():
        flow = london.flows[ORDERS]
        for message in list(flow.queue.live()):
            flow.queue.remove(message, Reason.NORMAL)
            flow.in_mirror.add(replace(message, number=london.next_number(), address=flow.in_mirror.address))
        london.changed.notify_all()
    assert staged(twin, "london") == staged(twin, "paris") == 3


def test_what_a_queue_refuses_that_takes_what_others_send_it_had_before(twin: PlayedTwin, dr_ctl: Command) -> None:
    had_and_staged_again(twin)

    with twin.load(100, queues=[ORDERS]) as traffic:
        traffic.wait_for(20)
        ended = done(dr_ctl("swapover", "--to", "paris", "--yes"))
        traffic.wait_for(traffic.counts().sent + 20)
        verdict = traffic.stop()

    assert "refused there, for they were delivered before: orders.in: 3" in ended.err
    assert verdict.clean
    assert not verdict.unexpected  # none of the three was delivered again
    assert staged(twin, "paris") == 0


@pytest.mark.parametrize("why", ["FAIL", "BLOCK", "DROP", "idle", "unread"])
def test_what_a_queue_refuses_that_is_idle_or_may_be_full_stays_where_it_is(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, why: str
) -> None:
    had_and_staged_again(twin)
    mine = brief(tmp_path)
    monkeypatch.setattr(runbook, "shipped", lambda: mine)
    if why in ("FAIL", "BLOCK", "DROP"):
        plugin(twin, "london").full.add(ORDERS)
        plugin(twin, "london").when_full = why
    if why == "unread":
        monkeypatch.setattr("dr_ctl_lab.twin.artemis.beans.SETTINGS", "another()")

    with twin.load(100, queues=["orders.out" if why == "idle" else ORDERS]) as traffic:
        traffic.wait_for(1)
        refused = dr_ctl("swapover", "--to", "paris", "--yes")
        verdict = traffic.stop()

    assert refused.code == 10, refused.document
    assert "DR-CONT-017" in [each["id"] for each in refused.document["findings"]]
    assert ("whether it refuses them was not read" in refused.document["summary"]) == (why == "unread")
    assert verdict.clean
    assert staged(twin, "london") == staged(twin, "paris") == 3


@pytest.mark.parametrize("site", [pytest.param("london", marks=pytest.mark.deep), "paris"])
@pytest.mark.parametrize(
    "operation",
    # Two of these are parts of the others.
    [
        "swapover",
        "failback",
        "failover",
        "unfence",
        *(pytest.param(each, marks=pytest.mark.deep) for each in ("activate", "reinstate")),
    ],
)
def test_whatever_is_done_while_an_address_takes_nothing_every_message_lies_somewhere(
    twin: PlayedTwin,
    dr_ctl: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    operation: str,
    site: str,
) -> None:
    mine = brief(tmp_path)
    monkeypatch.setattr(runbook, "shipped", lambda: mine)
    OPERATIONS[operation].before(twin, dr_ctl)
    had = unprocessed(twin)
    plugin(twin, site).full.add(ORDERS)

    with quick(monkeypatch):
        dr_ctl(*OPERATIONS[operation].words, "--yes")
        dr_ctl("swapover", "--to", "london", "--yes")

    at_rest(twin)
    assert had
    assert had <= unprocessed(twin)


def test_a_queue_that_vanishes_behind_the_fence_undoes_the_run(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted with its last consumer, while copies of it at the other site have lost their acknowledgements."""
    nothing(twin, dr_ctl)
    london = plugin(twin, "london")
    with monkeypatch.context() as patch:
        patch.setattr(london, "removed", lambda *_: None)  # the acknowledgements are lost
        for _ in range(2):
            take(twin, "london", ORDERS)
    deactivate = london.service.deactivate

    def with_its_last_consumer() -> None:
        deactivate()
        london.destroy_queue(ORDERS)

    monkeypatch.setattr(london.service, "deactivate", with_its_last_consumer)

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert ended.code == 20, ended.document
    assert "DR-CONT-005" in [each["id"] for each in ended.document["findings"]]
    assert ended.document["data"]["undone"]
    assert serving(twin) == ("london",)
    assert staged(twin, "paris") == 2


@pytest.mark.parametrize(("site", "codes"), [("london", (20, 24)), ("paris", (20, 23))])
def test_a_queue_that_vanishes_in_the_middle_of_a_return_ends_it_in_words(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, site: str, codes: tuple[int, ...]
) -> None:
    """At the serving site what the plugin leaves of its flow is put back by the bean that it has then, unless something
    of the residue was staged there by then: that was not compared, and stays held."""
    impatient(monkeypatch, compared_s=0.3, undo_s=1.0)
    OPERATIONS["reinstate"].before(twin, dr_ctl)
    paris = plugin(twin, "paris")
    opens = paris.open_door

    def with_its_last_consumer(acceptor: Acceptor) -> None:
        opens(acceptor)
        if acceptor.name == "mirror":
            plugin(twin, site).destroy_queue("orders.out", with_takers=True)

    monkeypatch.setattr(paris, "open_door", with_its_last_consumer)

    ended = dr_ctl("reinstate", "london", "--timeout", "3s", "--yes")

    assert ended.code in codes, ended.document
    assert ended.document["data"]["undone"] is (ended.code != 23)
    if site == "paris":
        assert "was deleted at paris meanwhile" in ended.document["summary"]
    if ended.code == 23:
        staged = paris.queues["orders.out.in.mirror"]
        assert (staged.paused, len(staged.messages) > 0) == (True, True)
    assert serving(twin) == ("paris",)
