"""The product against what the continuity plugin does by itself: late commands, late confirmations, deleted copies. No
move destroys a message that is staged and that nobody had yet, at either site."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.system import in_background
from dr_ctl.topologies.common.view import PeerState
from dr_ctl.topologies.continuity import copies
from dr_ctl.topologies.continuity import view as plugin
from dr_ctl.topologies.continuity.tools import PluginTimeouts
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.continuity import beans
from dr_ctl_lab.twin.continuity.broker import ContinuityBroker
from dr_ctl_lab.twin.faults import Fault, FaultKind, Trigger
from dr_ctl_lab.twin.kinds import CONTINUITY
from dr_ctl_lab.twin.messages import Reason
from dr_ctl_lab.twin.parts import Acceptor
from tests.conftest import Command
from tests.timeouts import impatient
from tests.twin.matrix import (
    ACCEPTED,
    OPERATIONS,
    at_rest,
    done,
    lose_and_return,
    nothing,
    put,
    quick,
    serving,
    take,
    unprocessed,
)
from tests.twin.subject import PluginSubject, until
from tests.twin.test_remedies import hurry

TOPOLOGY = CONTINUITY
IN, OUT = "orders.in", "orders.out"
TO_PARIS, TO_LONDON = (("swapover", "--to", site, "--yes") for site in ("paris", "london"))


@pytest.fixture
def london(twin: PlayedTwin) -> ContinuityBroker:
    return twin.brokers(ContinuityBroker)[0]


@pytest.fixture
def paris(twin: PlayedTwin) -> ContinuityBroker:
    return twin.brokers(ContinuityBroker)[1]


@pytest.fixture
def three(twin: PlayedTwin) -> None:
    """Messages that lie at London, with copies at Paris."""
    put(twin, "london", IN, 3)
    twin.wait_mirrored()


def staged(broker: ContinuityBroker) -> int:
    return len(broker.flows[IN].staging.messages)


# commands of the plugin's own


@pytest.mark.parametrize("rounds", [1, pytest.param(4, marks=pytest.mark.chaos)])
def test_commands_of_an_outage_activate_nobody(twin: PlayedTwin, dr_ctl: Command, rounds: int) -> None:
    """A site that activates itself whenever its peer says that it is there, and a peer that says so again and again."""
    for broker in twin.brokers(ContinuityBroker):
        broker.active_on_start = True
    lost, left = twin.brokers(ContinuityBroker)
    for _ in range(rounds):
        twin.kill(lost.site)
        done(dr_ctl("failover", "--to", left.site, "--yes", *ACCEPTED))
        twin.kill(left.site)
        twin.start(left.site)
        done(dr_ctl("failover", "--to", left.site, "--yes", *ACCEPTED))
        assert len(left.service.out.messages) > 1
        twin.start(lost.site)

        done(dr_ctl("reinstate", lost.site, "--yes"))

        assert (serving(twin), left.serves, lost.service.activated) == ((left.site,), True, False)
        lost, left = left, lost


@pytest.mark.parametrize("late", ["a command", "a deactivation and a cut"])
def test_what_deactivates_the_target_again_is_found_and_taken_back_once(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """Behind a cut the other cannot say that it has nothing left; each activation begins the wait for that anew."""
    london, paris = twin.brokers(ContinuityBroker)
    impatient(monkeypatch, PluginTimeouts, watch_s=1.0, watch_at_most_s=3.0)
    if late != "a command":
        monkeypatch.setattr(plugin, "WAITS_MS", dict.fromkeys(PeerState, 1000))

    def tell() -> None:
        until(lambda: paris.serves)
        if late != "a command":
            twin.cut()
        with twin.locked():
            london.service.send_command("deactivate-site") if late == "a command" else paris.service.deactivate()

    telling = in_background(tell, "late")
    ended = dr_ctl(*TO_PARIS)
    telling.result()

    until(lambda: paris.serves)
    activations = [change.site for change in twin.changes() if change.operation.startswith("activateSite(")]
    assert (activations, serving(twin)) == (["paris", "paris"], ("paris",))
    assert late != "a command" or done(ended)


def test_bridges_that_try_seldom_are_waited_for_and_taken_for_nothing_else(
    dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beans, "INTERVAL", "3000")
    impatient(monkeypatch, PluginTimeouts, watch_intervals=1, watch_at_most_s=0.5)

    ended = done(dr_ctl(*TO_PARIS))

    assert "which could undo the activation: 0" in ended.err


def test_clients_are_out_until_they_are_greeted_and_what_was_held_back_is_delivered_later(
    dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, london: ContinuityBroker
) -> None:
    """The other site never says that it has nothing left."""
    send = london.service.send_command
    quiet = lambda action, **options: action == "notif-outflow-exhausted" or send(action, **options)  # noqa: E731
    monkeypatch.setattr(london.service, "send_command", quiet)
    monkeypatch.setitem(plugin.WAITS_MS, PeerState.DRAINED, 3000)  # longer than the move itself may take

    data = done(dr_ctl(*TO_PARIS)).document["data"]

    page = Path(data["report"]).read_text(encoding="utf-8")
    assert data["outage_s"] < plugin.WAITS_MS[PeerState.DRAINED] / 1000
    assert "when paris let them in" in page
    assert "What was held back there is delivered since" in page


# copies, by id and by count


@pytest.mark.usefixtures("three")
def test_a_console_that_is_slower_than_the_first_look_of_a_drain_is_given_more_time(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, PluginTimeouts, read_timeout_s=0.05)
    done(dr_ctl("fence", "london", "--yes"))
    twin.host("paris").faults.add(Fault(FaultKind.LATE, Trigger(changing=False), times=None, seconds=0.3))

    done(dr_ctl("drain", "--to", "paris", "--yes"))


@pytest.mark.usefixtures("three")
def test_what_is_compared_by_count_only_is_refused_or_accepted_by_name_and_said_so(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "IDS_UP_TO", 2)

    refused = dr_ctl(*TO_PARIS)

    assert (refused.code, twin.changes(), "DR-CONT-014" in refused.ids) == (10, [], True), refused.document
    done(dr_ctl("fence", "london", "--yes"))
    unseen = dr_ctl("verify", "--to", "paris")
    assert (unseen.code != 0, "DR-CONT-014" in unseen.ids) == (True, True), unseen.document
    for words in (("drain", "--to", "paris", "--yes"), ("verify", "--to", "paris")):
        [row] = done(dr_ctl(*words, "--accept-difference", f"{IN}=0")).rows("DR-CONT-014")
        assert (row["text"].endswith(f"named: {IN}"), "are lost" in row["remedy"]) == (True, True)


@pytest.mark.usefixtures("three")
def test_equal_counts_hide_no_loss(
    twin: PlayedTwin, dr_ctl: Command, london: ContinuityBroker, paris: ContinuityBroker
) -> None:
    """Messages that could not be named, as many without a copy as with one that should be gone."""
    with twin.locked():
        first, *_ = london.queues[IN].available()
        first.headers = {key: text for key, text in first.headers.items() if key != "_AMQ_DUPL_ID"}
    done(dr_ctl("fence", "london", "--yes"))

    ended = dr_ctl("drain", "--to", "paris", "--timeout", "1s", "--yes")

    assert (ended.code, staged(paris)) == (24, 3), ended.document
    assert "a count does not show what would be lost" in ended.document["summary"]


@pytest.mark.parametrize(("count", "idle"), [(120, 0), (20, 2)], ids=["removed", "answered and not removed"])
def test_what_came_back_to_where_it_was_is_removed_while_clients_are_served(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, count: int, idle: int
) -> None:
    monkeypatch.setattr(copies, "AT_ONCE", 20)
    put(twin, "london", IN, count)
    done(dr_ctl(*TO_PARIS))
    twin.wait_mirrored()
    if idle:
        twin.host("london").faults.add(Fault(FaultKind.NOOP, Trigger(operation="removeMessages"), times=idle))

    back = done(dr_ctl(*TO_LONDON))

    lines = (tmp_path / "state" / "runs" / back.document["run"] / "journal.jsonl").read_text(encoding="utf-8")
    steps = [row for row in map(json.loads, lines.splitlines()) if row["kind"] == "step" and row["evidence"]]
    ends: dict[str, Any] = {step["step"][3:]: step["evidence"] for step in steps}
    assert ends["catch-up"]["removed"] == (0 if idle else count)
    assert ends["drain"]["removed"].get(IN) == (count if idle else None)
    assert PluginSubject(twin).depths_at("london", IN, f"{IN}.in.mirror") == [count, 0]


@pytest.mark.usefixtures("three")
def test_what_the_plugin_does_not_follow_refuses_the_move_before_the_fence(
    twin: PlayedTwin, dr_ctl: Command, paris: ContinuityBroker
) -> None:
    pair = PluginSubject(twin)
    with pair.client("london") as client:
        client.subscribe(IN)
        held = client.message()
        client.confirmed("DISCONNECT")
    pair.staged(IN, 2)
    with twin.locked():
        for message in paris.flows[IN].staging.messages.values():
            del message.headers["_AMQ_DUPL_ID"]

    ended = dr_ctl(*TO_PARIS)

    assert (ended.code, serving(twin), pair.depths_at("london", IN)) == (10, ("london",), [3]), ended.document
    assert (held.headers["_AMQ_DUPL_ID"] in ended.texts("DR-CONT-013")[0], twin.changes()) == (True, [])
    assert f"{IN}: 2 at paris" in ended.texts("DR-CONT-020")[0]

    twin.host("london").faults.add(Fault(FaultKind.ERROR, Trigger(operation="countMessages")))
    unread = dr_ctl("validate", "--for", "swapover")

    assert (unread.code, "not read at orders-1: every message has a copy" in unread.told) == (22, True), unread.told


@pytest.fixture
def even(twin: PlayedTwin, monkeypatch: pytest.MonkeyPatch, london: ContinuityBroker) -> None:
    """As many at both sites: of one message of London the copy is gone, and one copy at Paris is of a message that was
    done at London, whose acknowledgement was lost."""
    put(twin, "london", IN, 4)
    twin.wait_mirrored()
    pair = PluginSubject(twin)
    with monkeypatch.context() as patch:
        patch.setattr(london, "on_removed", lambda *_: None)
        take(twin, "london", IN)
    with pair.client("london") as client:
        client.subscribe(IN)
        client.message()
        client.confirmed("DISCONNECT")
    pair.staged(IN, 3)
    assert pair.depths(IN)[0] == 3


@pytest.mark.usefixtures("even")
@pytest.mark.parametrize("closed", [False, True])
def test_no_loss_is_called_bounded_that_a_copy_left_over_hides(twin: PlayedTwin, dr_ctl: Command, closed: bool) -> None:
    """By what the monitor has compared, and by what the closed site itself tells."""
    if closed:
        done(dr_ctl("fence", "london", "--yes"))
    else:
        done(dr_ctl("monitor", "--for", "12s"))
        twin.kill("london")

    refused = dr_ctl("failover", "--to", "paris", "--yes", "--accept-loss", "0", "--accept-duplicates", "1")

    bounds = refused.document["data"]["bounds"]
    assert (refused.code, bounds["duplicates"]["at_most"]) == (11, 1), refused.document
    assert bounds["lost"]["at_most"] == (1 if closed else None)
    assert closed or "at least 1: orders.in: 3 at london, 1 of them without a copy" in bounds["lost"]["because"]


def test_a_failback_is_refused_for_what_has_no_copy_as_a_swapover_is(twin: PlayedTwin, dr_ctl: Command) -> None:
    """At its catch-up, where only the return brings the copies in; then by its checks, and `validate` says so."""
    lose_and_return(twin, dr_ctl)
    PluginSubject(twin).put("paris", OUT)  # by management, which passes the plugin by

    owed = dr_ctl("failback", "--to", "london", "--yes")
    ready = dr_ctl("validate", "--for", "failback", "--to", "london")
    changes = len(twin.changes())
    refused = [dr_ctl(operation, "--to", "london", "--yes") for operation in ("failback", "swapover")]

    assert (owed.code, serving(twin), "DR-CONT-013" in owed.ids, owed.document["debts"]) == (20, ("paris",), True, [])
    assert (ready.code, "not ready" in ready.document["summary"]) == (10, True)
    assert [(item.code, "DR-CONT-013" in item.ids) for item in refused] == [(10, True)] * 2
    assert len(twin.changes()) == changes
    done(dr_ctl("failback", "--to", "london", "--yes", "--accept-difference", f"{OUT}=1"))


# what is staged, and nobody had


@pytest.fixture
def brief(twin: PlayedTwin, tmp_path: Path) -> None:
    """The runbooks with a catch-up that does not wait for long, but for longer than what is stuck is given."""
    hurry(twin, tmp_path / "runbooks")


@pytest.fixture
def staged_again(twin: PlayedTwin, three: None, london: ContinuityBroker, paris: ContinuityBroker) -> None:
    """What clients of London have consumed comes back to be delivered there once more, and Paris keeps its copies: what
    a standby does that is started again while it holds messages."""
    with twin.locked():
        flow = london.flows[IN]
        for message in list(flow.queue.available()):
            flow.queue.remove(message, Reason.NORMAL)
            flow.staging.add(replace(message, number=london.next_number(), address=flow.staging.address))
        london.changed.notify_all()
    assert staged(london) == staged(paris) == 3


@pytest.mark.usefixtures("staged_again")
def test_what_a_queue_refuses_that_takes_what_others_send_it_had_before(
    twin: PlayedTwin, dr_ctl: Command, paris: ContinuityBroker
) -> None:
    with twin.load(100, queues=[IN]) as traffic:
        traffic.wait_for(20)
        ended = done(dr_ctl(*TO_PARIS))
        traffic.wait_for(traffic.counts().sent + 20)
        verdict = traffic.stop()

    assert f"refused there, because they were delivered before: {IN}: 3" in ended.err
    assert (verdict.clean, verdict.unexpected) == (True, ())  # none of the three was delivered again
    assert staged(paris) == 0


@pytest.mark.usefixtures("staged_again", "brief")
@pytest.mark.parametrize("why", ["FAIL", "BLOCK", "DROP", "idle", "unread"])
def test_what_a_queue_refuses_that_is_idle_or_may_be_full_stays_where_it_is(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, london: ContinuityBroker, why: str
) -> None:
    if why in ("FAIL", "BLOCK", "DROP"):
        london.full.add(IN)
        london.when_full = why
    if why == "unread":
        monkeypatch.setattr("dr_ctl_lab.twin.artemis.beans.SETTINGS", "another()")

    with twin.load(100, queues=[OUT if why == "idle" else IN]) as traffic:
        traffic.wait_for(1)
        refused = dr_ctl(*TO_PARIS)
        verdict = traffic.stop()

    assert (refused.code, "DR-CONT-017" in refused.ids, verdict.clean) == (10, True, True), refused.document
    assert ("whether it refuses them was not read" in refused.document["summary"]) == (why == "unread")
    assert [staged(broker) for broker in twin.brokers(ContinuityBroker)] == [3, 3]


AT_NIGHT = [pytest.param(name, marks=pytest.mark.deep) for name in ("activate", "reinstate")]  # parts of the others


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("site", [pytest.param("london", marks=pytest.mark.deep), "paris"])
@pytest.mark.parametrize("operation", ["swapover", "failback", "failover", "unfence", *AT_NIGHT])
def test_whatever_is_done_while_an_address_takes_nothing_every_message_lies_somewhere(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, operation: str, site: str
) -> None:
    OPERATIONS[operation].before(twin, dr_ctl)
    before = unprocessed(twin)
    twin.brokers(ContinuityBroker)[site == "paris"].full.add(IN)

    with quick(monkeypatch):
        dr_ctl(*OPERATIONS[operation].words, "--yes")
        dr_ctl(*TO_LONDON)

    at_rest(twin)
    assert before
    assert before <= unprocessed(twin)


# queues that vanish


def test_a_queue_that_vanishes_behind_the_fence_undoes_the_run(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted with its last consumer, while copies of it at the other site have lost their acknowledgements."""
    london, paris = twin.brokers(ContinuityBroker)
    nothing(twin, dr_ctl)
    with monkeypatch.context() as patch:
        patch.setattr(london, "on_removed", lambda *_: None)  # the acknowledgements are lost
        for _ in range(2):
            take(twin, "london", IN)
    deactivate = london.service.deactivate
    monkeypatch.setattr(london.service, "deactivate", lambda: (deactivate(), london.destroy_queue(IN))[0])

    ended = dr_ctl(*TO_PARIS)

    assert (ended.code, ended.document["data"]["undone"], serving(twin)) == (20, True, ("london",)), ended.document
    assert ("DR-CONT-005" in ended.ids, staged(paris)) == (True, 2)


@pytest.mark.parametrize(("site", "codes"), [("london", (20, 24)), ("paris", (20, 23))])
def test_a_queue_that_vanishes_in_the_middle_of_a_return_ends_it_in_words(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, site: str, codes: tuple[int, ...]
) -> None:
    """At the serving site what the plugin leaves of its flow is put back by the bean that it has then, unless something
    of the residue was staged there by then: that was not compared, and stays held."""
    impatient(monkeypatch, compared_s=0.3, undo_s=1.0)
    OPERATIONS["reinstate"].before(twin, dr_ctl)
    london, paris = twin.brokers(ContinuityBroker)
    opens = paris.open_listener

    def with_its_last_consumer(acceptor: Acceptor) -> None:
        opens(acceptor)
        if acceptor.name == "mirror":
            (london if site == "london" else paris).destroy_queue(OUT, with_consumers=True)

    monkeypatch.setattr(paris, "open_listener", with_its_last_consumer)

    ended = dr_ctl("reinstate", "london", "--timeout", "3s", "--yes")

    assert (ended.code in codes, serving(twin)) == (True, ("paris",)), ended.document
    assert ended.document["data"]["undone"] is (ended.code != 23)
    assert site == "london" or "was deleted at paris meanwhile" in ended.document["summary"]
    if ended.code == 23:
        left = paris.queues[f"{OUT}.in.mirror"]
        assert (left.paused, len(left.messages) > 0) == (True, True)
