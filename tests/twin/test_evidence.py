"""What a run of `classic-brokersync` removes, leaves and keeps aside, on simulated brokers: by evidence alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dr_ctl.cli.app import run
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Outcome
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.common.sender import Sender
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.brokersync.broker import BrokerSyncBroker
from dr_ctl_lab.twin.kinds import BROKERSYNC
from dr_ctl_lab.twin.messages import Message
from tests.conftest import Command
from tests.patience import time_now
from tests.twin.classic_subject import DLQ, ORDERS, ClassicSubject
from tests.twin.subject import until
from tests.twin.test_sync import Beside, follow, of, one_way, work

TOPOLOGY = BROKERSYNC


@pytest.fixture
def pair(twin: PlayedTwin) -> ClassicSubject:
    """Without the twin's own agent."""
    for broker in twin.brokers(BrokerSyncBroker):
        if broker.agent is not None:
            broker.agent.stop()
    return ClassicSubject(twin)


def take(pair: ClassicSubject, site: str, count: int, *, word: str = "ACK") -> None:
    with pair.client(site) as client:
        client.subscribe(ORDERS, **{"activemq.prefetchSize": "1"})
        for _ in range(count):
            client.confirmed(word, id=client.message().headers["ack"])


def send(pair: ClassicSubject, site: str, count: int) -> None:
    with pair.client(site) as client:
        for _ in range(count - 1):
            client.connection.stomp.send_frame("SEND", {"destination": f"/queue/{ORDERS}", "persistent": "true"}, "x")
        client.send(ORDERS)


def lie(pair: ClassicSubject) -> tuple[int, int]:
    return pair.depth("london", ORDERS), pair.depth("paris", ORDERS)


def at_london_alone(pair: ClassicSubject, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """5 dead letters that are retried never reach Paris again; the agent has deleted 35 copies there."""
    work(pair, 40, 0)

    def clients_work() -> None:
        take(pair, "london", 30)
        take(pair, "london", 5, word="NACK")

    with monkeypatch.context() as once:
        Beside(once, clients_work)
        assert follow(capsys, "--for", "4s")[1][-1]["data"]["deleted"] == 35
    pair.done("london", pair.queue("london", DLQ), "retryMessages()")
    pair.settled()
    assert lie(pair) == (10, 5)


def lost_and_back(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.kill("london")
    assert (
        dr_ctl("failover", "--to", "paris", "--yes", "--accept-loss", "unknown", "--accept-duplicates", "unknown").code
        == 0
    )
    twin.start("london")


def test_a_return_removes_nothing_that_no_client_has_consumed(
    pair: ClassicSubject,
    twin: PlayedTwin,
    dr_ctl: Command,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_london_alone(pair, capsys, monkeypatch)
    lost_and_back(twin, dr_ctl)

    ended = dr_ctl("reinstate", "london", "--yes")

    assert (ended.code, lie(pair)) == (0, (10, 5))
    assert "5 message(s)" in of(ended, "DR-SYNC-007")[0]
    assert "5 message(s)" in of(dr_ctl("status"), "DR-SYNC-007")[0]
    back = dr_ctl("failback", "--to", "london", "--yes", "--accept-difference", f"{ORDERS}=5")
    assert (back.code, pair.depth("london", ORDERS)) == (0, 10)


def test_an_agent_of_the_other_direction_does_not_count_what_was_deleted_and_browsed_there_before(
    pair: ClassicSubject,
    twin: PlayedTwin,
    dr_ctl: Command,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_london_alone(pair, capsys, monkeypatch)
    lost_and_back(twin, dr_ctl)
    assert dr_ctl("reinstate", "london", "--yes").code == 0

    _, (*lines, _) = follow(capsys, "--for", "3s")

    assert (lines[0]["primary"], lines[-1]["phase"], lie(pair)) == ("paris", "held", (10, 5))
    assert "5 message(s)" in of(dr_ctl("status"), "DR-SYNC-007")[0]


def test_a_return_removes_what_clients_of_the_serving_site_consumed(
    pair: ClassicSubject, twin: PlayedTwin, dr_ctl: Command
) -> None:
    work(pair, 10, 0)
    lost_and_back(twin, dr_ctl)
    take(pair, "paris", 4)

    ended = dr_ctl("failback", "--to", "london", "--yes")

    assert (ended.code, lie(pair)) == (0, (6, 6))
    assert of(ended, "DR-SYNC-007") == []


def test_a_return_removes_nothing_while_somebody_holds(pair: ClassicSubject, twin: PlayedTwin, dr_ctl: Command) -> None:
    work(pair, 10, 0)
    lost_and_back(twin, dr_ctl)
    take(pair, "paris", 4)
    assert dr_ctl("sync", "--hold", "keep the copies").code == 0

    ended = dr_ctl("reinstate", "london", "--yes")

    assert (ended.code, lie(pair)) == (0, (10, 6))
    assert "keep the copies" in of(ended, "DR-SYNC-007")[0]


def open_for_a_while(pair: ClassicSubject, count: int) -> None:
    """Paris, which waits and ships nothing, was restarted: it opened its doors, and clients sent so many there."""
    pair.done("paris", pair.network("paris"), "stop()")
    pair.stage.open_clients("paris")
    send(pair, "paris", count)
    pair.stage.close_clients("paris")


@pytest.mark.parametrize("form", ["one way", "both ways"])
def test_a_swapover_never_removes_what_only_the_target_had(
    form: str, pair: ClassicSubject, twin: PlayedTwin, dr_ctl: Command
) -> None:
    if form == "one way":
        one_way(twin)
    work(pair, 20, 18)
    moves = "moveMatchingMessagesTo(java.lang.String,java.lang.String,int)"
    pair.done("paris", pair.queue("paris", ORDERS), moves, "", "aside", 10)  # London's counters cover 10 more
    open_for_a_while(pair, 5)

    refused = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (refused.code, lie(pair)) == (20, (2, 15))
    assert "sent at paris" in refused.told
    if form == "one way":
        accepted = [word for name in (f"{ORDERS}=5", "aside=10") for word in ("--accept-difference", name)]
        moved = dr_ctl("swapover", "--to", "paris", "--yes", *accepted)
        assert (moved.code, lie(pair)) == (0, (2, 7))


def test_an_agent_counts_nothing_twice_after_a_run(
    pair: ClassicSubject, dr_ctl: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    work(pair, 20, 0)
    with monkeypatch.context() as once:
        Beside(once, lambda: take(pair, "london", 15))
        assert follow(capsys, "--for", "4s")[1][-1]["data"]["deleted"] == 15
    for verb in ("quiesce", "unfence"):
        assert dr_ctl(verb, "london", "--yes").code == 0
    pair.done("london", pair.queue("london", ORDERS), "purge()")

    assert follow(capsys, "--for", "3s")[1][-1]["data"]["deleted"] == 0
    assert lie(pair) == (0, 5)


def test_dead_letters_of_the_new_site_are_counted_before_and_after(
    pair: ClassicSubject, twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dead_letter() -> None:
        with twin.still():
            paris = twin.host("paris").broker
            paris.route(Message(paris.next_number(), DLQ, b"dead", text=True, headers={}))

    dead_letter()
    calm = dr_ctl("swapover", "--to", "paris", "--yes")
    assert dr_ctl("swapover", "--to", "london", "--yes").code == 0
    post = Sender._post

    def posted(sender: Sender, calls: Sequence[Call]) -> Sequence[Outcome]:
        outcomes = post(sender, calls)
        if any(call.goal is Goal.OPEN for call in calls):
            dead_letter()
        return outcomes

    monkeypatch.setattr(Sender, "_post", posted)
    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (calm.code, of(calm, "DR-DLQ-001")) == (0, []), calm.told
    assert f"paris/orders-1 {DLQ}: 1" in of(ended, "DR-DLQ-001")[0]


DEEP = 2600


def test_deep_queues_of_equal_depth_are_compared_by_id(
    pair: ClassicSubject,
    twin: PlayedTwin,
    dr_ctl: Command,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send(pair, "london", DEEP)
    pair.settled()
    with monkeypatch.context() as once:
        Beside(once, lambda: take(pair, "london", 60, word="NACK"))
        assert follow(capsys, "--for", "6s")[1][-1]["data"]["deleted"] == 60
    pair.done("london", pair.queue("london", DLQ), "retryMessages()")
    pair.settled()
    take(pair, "london", 60)
    assert lie(pair) == (DEEP - 60, DEEP - 60)

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (ended.code, lie(pair)) == (20, (DEEP - 60, DEEP - 60))
    assert "60 message(s)" in of(ended, "DR-PARITY-004")[0]


def test_a_queue_too_deep_for_the_time_of_a_drain_is_told_before_the_fence_and_in_the_end(
    pair: ClassicSubject, dr_ctl: Command
) -> None:
    send(pair, "london", DEEP)
    pair.settled()

    asked = dr_ctl("swapover", "--to", "paris", "--dry-run", "--timeout", "1s")
    ended = dr_ctl("swapover", "--to", "paris", "--yes", "--timeout", "1s")

    assert (asked.code, ended.code) == (0, 0)
    assert all(f"up to {DEEP} may come twice" in text for each in (asked, ended) for text in of(each, "DR-SYNC-006"))
    assert of(ended, "DR-SYNC-006") != []
    assert of(asked, "DR-SYNC-006") != []


def test_what_a_run_browsed_and_removed_is_no_evidence_for_the_next(pair: ClassicSubject, dr_ctl: Command) -> None:
    """The browse of a deep queue counts as a dispatch, and a copy that was removed answers for no other."""
    send(pair, "london", DEEP)
    pair.settled()
    take(pair, "london", 4)
    assert [dr_ctl(verb, *words, "--yes").code for verb, *words in CLOSED_FOR_A_WHILE] == [0, 0, 0]
    assert lie(pair) == (DEEP - 4, DEEP - 4)
    left = pair.ids("london")[:4]
    asked = f"JMSMessageID IN ('{left[0]}','{left[1]}','{left[2]}','{left[3]}')"
    pair.done("london", pair.queue("london", ORDERS), "removeMatchingMessages(java.lang.String)", asked)

    ended = dr_ctl("swapover", "--to", "paris", "--yes")

    assert (ended.code, lie(pair)) == (10, (DEEP - 8, DEEP - 4))
    assert "4 message(s)" in of(ended, "DR-SYNC-004")[0]


CLOSED_FOR_A_WHILE = (("fence", "london"), ("drain", "--to", "paris"), ("unfence", "london"))


def test_a_failovers_price_counts_what_the_target_lacks_and_what_nothing_copies(
    pair: ClassicSubject, twin: PlayedTwin, dr_ctl: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.done("london", pair.network("london"), "stop()")
    send(pair, "london", 20)
    pair.done("london", pair.queue("london", pair.copied("london")), "purge()")
    with pair.client("london") as client:
        for _ in range(30):
            client.send("plain.q")
    assert run(["monitor", "--for", "3s", "--json"], time_now()) == 0
    capsys.readouterr()
    twin.kill("london")

    refused = dr_ctl("failover", "--to", "paris", "--yes", "--accept-loss", "0")

    bounds = refused.document["data"]["bounds"]
    lost = {each["name"]: each["lost"] for each in bounds["queues"]}
    assert (refused.code, bounds["lost"]["at_most"], bounds["duplicates"]["at_most"]) == (11, 50, 0)
    assert (lost[ORDERS], lost["plain.q"]) == (20, 30)


SETTLE = ("sync", "--settle", "--site")


def test_a_person_keeps_aside_what_nothing_proves_and_puts_it_back_where_clients_get_it(
    pair: ClassicSubject,
    twin: PlayedTwin,
    dr_ctl: Command,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_london_alone(pair, capsys, monkeypatch)
    lost_and_back(twin, dr_ctl)
    assert dr_ctl("reinstate", "london", "--yes").code == 0
    alone = sorted({*pair.ids("london")} - {*pair.ids("paris")})

    shown = dr_ctl(*SETTLE, "london", "--dry-run")
    refused = dr_ctl(*SETTLE, "london", "--yes")
    elsewhere = dr_ctl(*SETTLE, "paris", "--yes", "--reason", "CHG-1")

    assert shown.document["data"]["queues"] == [{"pair": "orders-1", "name": ORDERS, "ids": alone, "why_not": None}]
    assert (shown.code, refused.code, elsewhere.code, lie(pair)) == (0, 2, 10, (10, 5))

    aside = dr_ctl(*SETTLE, "london", "--yes", "--reason", "CHG-1: looked at each")

    assert (aside.code, lie(pair)) == (0, (5, 5))
    assert "sync --settle --put-back --site london" in dr_ctl("status").told
    too_early = dr_ctl(*SETTLE, "london", "--put-back", "--yes", "--reason", "CHG-1")
    assert (too_early.code, [each["id"] for each in too_early.document["findings"]][-1]) == (10, "DR-SYNC-008")

    moved = dr_ctl("swapover", "--to", "london", "--yes")
    back = dr_ctl(*SETTLE, "london", "--put-back", "--yes", "--reason", "CHG-1: never done")

    assert (moved.code, back.code, lie(pair)) == (0, 0, (10, 5))
    assert {*alone} < {*pair.ids("london")}
    assert dr_ctl(*SETTLE, "london", "--put-back", "--yes", "--reason", "CHG-1").code == 0


def test_what_was_not_shipped_and_kept_aside_is_shipped_when_it_is_put_back(
    pair: ClassicSubject, twin: PlayedTwin, dr_ctl: Command
) -> None:
    work(pair, 10, 0)
    pair.done("london", pair.network("london"), "stop()")
    send(pair, "london", 6)
    take(pair, "london", 16)
    lost_and_back(twin, dr_ctl)
    assert dr_ctl("reinstate", "london", "--yes").code == 0
    assert lie(pair) == (0, 0)
    kept = f"dr-ctl.quarantine.london.{pair.copied('london')}"
    assert pair.depth("london", kept) == 6

    back = dr_ctl(*SETTLE, "london", "--put-back", "--yes", "--reason", "CHG-2: never done")

    assert back.code == 0
    until(lambda: lie(pair) == (0, 6))
