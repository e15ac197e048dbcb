"""Sites that diverts and bridges join: what a move of some queues, a trim and a fence do to messages and to rights, and
two oddities of the bridges that only a twin can be made to show."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from dr_ctl.core.model import ExitCode
from dr_ctl.core.system import in_background, system
from dr_ctl.engine.ports import Failed, Outcome
from dr_ctl.topologies.common.topology import PairDriver
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.bridges.broker import BridgesBroker
from dr_ctl_lab.twin.bridges.clients import consume
from dr_ctl_lab.twin.kinds import BRIDGES
from dr_ctl_lab.twin.messages import Message, Reason
from tests.conftest import Command
from tests.jolokia.console import closed_port
from tests.twin.matrix import ACCEPTED, done, edited, kept, put
from tests.twin.subject import IDS, IN, ORIGIN, OUT, until

TOPOLOGY = BRIDGES
TO_PARIS, TO_LONDON = (("swapover", "--to", site, "--yes") for site in ("paris", "london"))


def open_at(twin: PlayedTwin, queue: str) -> list[str]:
    with twin.locked():
        return [broker.site for broker in twin.brokers(BridgesBroker) if broker.serves_queue(queue)]


def send(
    twin: PlayedTwin, count: int, *, queue: str = IN, priority: int = 4, anycast: bool = True, **headers: str
) -> None:
    """At the site that serves `orders.in`, and what bridges bring of it is there when this returns."""
    with twin.locked():
        [broker] = [broker for broker in twin.brokers(BridgesBroker) if broker.serves_queue(IN)]
        for number in range(count):
            document: dict[str, Any] = {
                "headers": {"n": str(number), **headers},
                "priority": priority,
                "anycast": anycast,
            }
            broker.route(Message(broker.next_number(), queue, b"m", text=True, **document))
    twin.wait_mirrored()


def worked_off(twin: PlayedTwin, most: int | None = None) -> None:
    """What clients at London process; the ids of all are applied at Paris when this returns."""
    london, paris = twin.brokers(BridgesBroker)
    with twin.locked():
        consume(london, IN, most=most)
    until(lambda: paris.ids.every() == london.ids.every())


# a part of a site


@contextmanager
def all_the_time(act: Callable[[int], object], every_s: float) -> Iterator[None]:
    """Clients do it again and again, beside."""
    over = system().event()

    def work() -> None:
        number = 0
        while not over.wait(every_s):
            number += 1
            act(number)

    client = in_background(work, "client")
    try:
        yield
    finally:
        over.set()
        client.result()


def test_a_site_that_still_ships_is_not_taken_for_down(twin: PlayedTwin, dr_ctl: Command) -> None:
    """Console and greeting of its settings refuse, and every bridge of the survivor is stopped, so that it hears its
    peer by what arrives alone."""
    with edited(twin) as settings_file:
        broker = settings_file["sites"]["london"]["brokers"][0]
        broker["jolokia"] = closed_port()
        broker["stomp"] = f"stomp://{urlsplit(broker['jolokia']).netloc}"
    with twin.locked():
        twin.brokers(BridgesBroker)[1].stop_bridges()

    with all_the_time(lambda _: put(twin, "london", IN, 1), 0.01):
        ended = dr_ctl("failover", "--to", "paris", *ACCEPTED, "--yes")

    assert (ended.code, ended.document["run"]) == (ExitCode.PRECHECK_FAILED, None), ended.document
    assert open_at(twin, IN) == ["london"]


def test_a_move_of_one_queue_goes_on_while_reply_queues_come_and_go(twin: PlayedTwin, dr_ctl: Command) -> None:
    london, _ = twin.brokers(BridgesBroker)

    def reply(number: int) -> None:
        options = {"name": f"reply.{number}", "address": f"reply.{number}", "routing-type": "ANYCAST"}
        with twin.locked():
            london.create_queue({**options, "durable": False, "temporary": True})
            if number > 1:
                london.destroy_queue(f"reply.{number - 1}")

    with all_the_time(reply, 0.05):
        codes = [dr_ctl(*words, "--queues", OUT).code for words in (TO_PARIS, TO_LONDON) * 2]

    assert codes == [ExitCode.OK] * 4


# messages that the standby lacks


def lose(twin: PlayedTwin, which: slice) -> None:
    """Somebody purges copies at the standby, and no urgent ones."""
    _, paris = twin.brokers(BridgesBroker)
    with twin.locked():
        queue = paris.queues[IN]
        for message in [message for message in queue.messages.values() if message.priority == 4][which]:
            paris.remove(queue, message, Reason.KILLED)


ALL, SOME = slice(None), slice(5)


@pytest.mark.parametrize(
    ("headers", "came_back", "urgent", "which"),
    [
        pytest.param({ORIGIN: "london"}, False, 0, ALL, id="all of a sender that writes its own site"),
        pytest.param({}, True, 0, ALL, id="all that came from the other site, which was built anew"),
        pytest.param({}, False, 0, SOME, id="the oldest, as what a bridge had in hand when the peer refused it"),
        pytest.param({}, False, 1, ALL, id="all but an urgent one"),
    ],
)
def test_what_the_waiting_site_lacks_refuses_the_move(
    *, twin: PlayedTwin, dr_ctl: Command, headers: dict[str, str], came_back: bool, urgent: int, which: slice
) -> None:
    if came_back:
        done(dr_ctl(*TO_PARIS))
    send(twin, 10, **headers)
    send(twin, urgent, priority=9)
    if came_back:
        done(dr_ctl(*TO_LONDON))
    lose(twin, which)

    ended = dr_ctl(*TO_PARIS)

    assert (ended.code, open_at(twin, IN)) == (ExitCode.REVERTED, ["london"]), ended.document
    lost = len(range(10)[which])
    assert f"{lost} message(s) of {IN} are at london and not at paris" in ended.document["summary"]


def test_a_queue_that_only_the_serving_site_has_refuses_the_move(twin: PlayedTwin, dr_ctl: Command) -> None:
    with twin.locked():
        audit = {"name": "audit", "address": IN, "routing-type": "MULTICAST", "durable": True}
        twin.brokers(BridgesBroker)[0].create_queue(audit)
    send(twin, 7, anycast=False)

    ended = dr_ctl(*TO_PARIS, "--queues", IN)

    assert (ended.code, open_at(twin, IN)) == (ExitCode.PRECHECK_FAILED, ["london"]), ended.document
    assert "7 message(s) of audit are at london, and paris has no such queue" in ended.document["summary"]


def an_urgent_one_before_a_long_history(twin: PlayedTwin) -> None:
    send(twin, 2500)
    worked_off(twin)
    send(twin, 1, priority=9)


def some_that_an_ordinary_divert_brings(twin: PlayedTwin) -> None:
    london, _ = twin.brokers(BridgesBroker)
    with twin.locked():
        london.create_queue({"name": "src", "routing-type": "ANYCAST"})
        london.create_divert({"name": "app.src", "address": "src", "forwarding-address": IN, "exclusive": True})
    send(twin, 5, queue="src")


def some_that_were_processed_where_they_lack(twin: PlayedTwin) -> None:
    """Paris processed them when it served; London's consumers have not passed over them yet."""
    send(twin, 5)
    _, paris = twin.brokers(BridgesBroker)
    with twin.locked():
        for message in list(paris.queues[IN].messages.values()):
            paris.ids.add(IN, paris.identity(message), local=True)
            paris.remove(paris.queues[IN], message, Reason.NORMAL)


LYING = (an_urgent_one_before_a_long_history, some_that_an_ordinary_divert_brings)


@pytest.mark.parametrize("lying", [*LYING, some_that_were_processed_where_they_lack])
def test_what_is_at_both_sites_or_processed_refuses_no_move(
    twin: PlayedTwin, dr_ctl: Command, lying: Callable[[PlayedTwin], None]
) -> None:
    lying(twin)

    ended = done(dr_ctl(*TO_PARIS))

    assert (open_at(twin, IN), ended.rows("DR-BRIDGE-016")) == (["paris"], [])


# a trim


@pytest.mark.parametrize(
    ("headers", "longs"), [({ORIGIN: "london"}, {}), ({}, {"_AMQ_ORIG_MESSAGE_ID": 10**12}), ({}, {})]
)
def test_no_copy_goes_of_a_message_that_nobody_has_processed(
    twin: PlayedTwin, dr_ctl: Command, headers: dict[str, str], longs: dict[str, int]
) -> None:
    """Whatever its sender wrote into it, and whatever was sent before and after it was processed."""
    london, _ = twin.brokers(BridgesBroker)
    put(twin, "london", IN, 3)
    with twin.locked():
        london.route(Message(london.next_number(), IN, b"one", text=True, headers=headers, longs=dict(longs)))
    put(twin, "london", IN, 3)
    twin.wait_mirrored()
    worked_off(twin, most=3)

    ended = done(dr_ctl("trim", "paris", "--yes"))

    stay = "3 processed copies removed at paris; in no store of both sites, and so left there: 4 of orders.in"
    assert (twin.depth("paris", IN), ended.texts("DR-BRIDGE-017")) == (4, [stay])


# rights that somebody gave through management: a fence replaces them, and whoever lets clients in gives them back

GIVEN = {
    IN: ("amq,app,bridge", "amq,app", *["amq"] * 8, "amq", "amq"),  # less than broker.xml gives a client
    OUT: ("amq,app,bridge,audit", "amq,app,audit", *["amq"] * 10),
}


@pytest.fixture(params=["app", "bridge", "nobody"])
def given(twin: PlayedTwin, dr_ctl: Command, request: pytest.FixtureRequest) -> dict[str, object]:
    """What each match is given by hand at both sites; broker.xml gives clients nothing, or the bridges, or all."""
    for security in (broker.security for broker in twin.brokers(BridgesBroker)):
        with twin.locked():
            security.stored[IDS] = security._file["#"]  # the bridges' role sends there whatever becomes of the rest
            security._file = {"#": {role: may for role, may in security._file["#"].items() if role != request.param}}
            for match, words in GIVEN.items():
                security.remove(match)
                security.add(match, *words)
            security.reload()
    before = kept(twin, "paris")
    done(dr_ctl("fence", "paris", "--yes"))
    return dict(before)


def test_they_are_as_before_wherever_clients_are_let_in(
    twin: PlayedTwin, dr_ctl: Command, given: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (TO_PARIS, TO_LONDON):
        done(dr_ctl(*words))

        to = words[2]
        assert (kept(twin, to), to in open_at(twin, IN), to in open_at(twin, OUT)) == (given, True, True)

    done(dr_ctl("fence", "london", "--yes"))
    assert open_at(twin, IN) == []
    monkeypatch.setenv("DR_CTL_STATE_DIR", str(twin.directory / "another host"))
    done(dr_ctl("unfence", "london", "--yes"))
    assert kept(twin, "london") == given


def test_an_undone_fence_gives_them_back(twin: PlayedTwin, dr_ctl: Command, given: dict[str, object]) -> None:
    _, paris = twin.brokers(BridgesBroker)
    with twin.locked():
        paris.security._file = {}
        paris.security.stored.clear()
        paris.security.add("#", *["amq,bridge"] * 12)
        paris.security.reload()

    ended = dr_ctl(*TO_PARIS)

    assert (ended.code, kept(twin, "london"), open_at(twin, IN)) == (ExitCode.REVERTED, given, ["london"])


def test_a_failover_that_is_undone_does_not_wait_for_the_site_that_is_lost(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = PairDriver.apply

    def refused(driver: Any, step: Any, *of: Any) -> Outcome:
        return Failed("this test wants it so") if step.verb == "settle" else act(driver, step, *of)

    monkeypatch.setattr(PairDriver, "apply", refused)
    twin.kill("london")
    ended = dr_ctl("failover", "--to", "paris", "--yes", *ACCEPTED)

    assert (ended.code, open_at(twin, IN)) == (ExitCode.REVERTED, []), ended.document
