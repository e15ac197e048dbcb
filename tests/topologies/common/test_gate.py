"""The gate: each condition alone keeps it shut; who is late is told as silent; many calls go in several POSTs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from dr_ctl.core.errors import TimedOut
from dr_ctl.core.model import Role
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Done, Outcome
from dr_ctl.topologies.common import observer
from dr_ctl.topologies.common.calls import pause
from dr_ctl.topologies.common.gate import PairReading, common_blockers
from dr_ctl.topologies.common.observer import Watch
from dr_ctl.topologies.common.snapshot import Silent
from dr_ctl.topologies.common.tools import MAX_IN_A_POST, Sender
from dr_ctl.topologies.mirror.view import BrokerView
from tests.topologies.continuity import views as plugin
from tests.topologies.mirror import views
from tests.topologies.mirror.views import ADMIN, CLIENTS, MIRROR, broker, consumer, listener, outflow, queue, with_queue

Change = Callable[[BrokerView], BrokerView]
SIDES = pytest.mark.parametrize("side", ["london", "paris"])


def closed(site: str) -> BrokerView:
    return broker(site, queue("orders.in", 3, site=site), serving=False)


def sample(**changed: BrokerView) -> PairReading:
    """Both sites closed and settled, but for those given."""
    return PairReading(0.0, changed.get("london", closed("london")), changed.get("paris", closed("paris")))


def admin_listener(view: BrokerView) -> BrokerView:
    return replace(view, acceptors=(*view.acceptors, listener("admin", ADMIN, site=view.site)))


def but(**changed: Any) -> Change:
    """A view that is otherwise; what is callable is of the view."""
    return lambda view: replace(view, **{k: value(view) if callable(value) else value for k, value in changed.items()})


def queued(*names: Any, **more: Any) -> Change:
    return lambda view: with_queue(view, queue(*names, site=view.site, **more))


def flowing(**more: Any) -> Change:
    return lambda view: with_queue(view, outflow(view.site, **more))


def connected(*ports: int | None, link: bool = False) -> Any:
    rows = tuple(views.connection(port) for port in ports)
    return lambda view: (*([views.link_connection(view.site)] if link else []), *rows)


SF = "$.artemis.internal.sf.cluster"
SHUT: dict[str, tuple[Change, str]] = {
    "a listener is open": (but(acceptors=lambda view: views.listeners(view.site, serving=True)), "lets clients in"),
    "a client is connected": (but(connections=connected(CLIENTS)), "1 client connection(s)"),
    "clients are connected through another listener": (
        lambda view: but(connections=connected(ADMIN, ADMIN))(admin_listener(view)),
        "2 client connection(s), the first from 10.1.2.3:50412",
    ),
    "a client is connected through the link's listener": (
        but(connections=connected(MIRROR, link=True)),
        "a client on the listener of the link: STOMP connection from 10.1.2.3:50412",
    ),
    "a consumer is there": (but(consumers=(consumer(),)), "a consumer of orders.in: client billing"),
    "a consumer by an unknown listener": (but(consumers=(consumer(port=None),)), "a consumer of orders.in"),
    "a message is in delivery": (queued(depth=3, delivering=2), "in delivery: orders.in"),
    "less than nothing is in delivery": (queued(depth=3, delivering=-1), "orders.in cannot be determined"),
    "a transaction is prepared": (but(prepared=("AQID",)), "1 prepared transaction(s)"),
    "the link is stopped": (but(links=lambda view: (replace(view.links[0], started=False),)), "is not started"),
    "the link is cut": (but(links=lambda view: (replace(view.links[0], connected=False),)), "is not attached"),
    "nobody takes from the outflow": (flowing(consumers=0), "is not attached"),
    "something is to ship": (flowing(depth=4), "4 to ship"),
    "something is being shipped": (flowing(delivering=1), "0 to ship"),
    "acknowledgements are pending": (but(pending_acks=276), "276 acknowledgement(s) not applied yet"),
    "between brokers of the site": (queued(SF, 5, internal=True, added=0), "5 message(s) on their way"),
    "the link cannot be determined": (
        but(config=lambda view: replace(view.config, link="mistyped")), "the link or its outflow is not there"
    ),
    "the outflow cannot be determined": (
        but(queues=lambda view: tuple(view.business.values())), "the link or its outflow is not there"
    ),
}  # fmt: skip


@SIDES
@pytest.mark.parametrize("what", SHUT)
def test_each_condition_alone_keeps_it_shut(side: str, what: str) -> None:
    change, words = SHUT[what]
    shut = sample(**{side: change(closed(side))})
    for before in (None, shut):
        [reason] = common_blockers(shut, before)
        assert reason.startswith(side)
        assert words in reason


def test_without_a_link_from_the_source_it_stays_shut_and_one_back_is_not_missed() -> None:
    unlinked = {site: replace(closed(site), links=(), pending_acks=0) for site in ("london", "paris")}
    assert common_blockers(sample(london=unlinked["london"]), None) == [
        "london has no link to paris: nothing is shipped"
    ]
    assert common_blockers(sample(paris=unlinked["paris"]), None) == []
    pending = replace(unlinked["paris"], pending_acks=4)
    assert common_blockers(sample(paris=pending), None) == ["paris: 4 acknowledgement(s) not applied yet"]


@SIDES
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (queued(depth=3, added=4), "orders.in is still being added to"),
        # Messages came and went: the depth is what it was, only the counter tells.
        (queued(depth=3, added=9, acked=6, removed=6), "orders.in is still being added to"),
        (queued("new", 1), "new is still being added to"),
        (but(start="1795259999999"), "was restarted"),
    ],
)
def test_what_moved_since_the_window_began_keeps_it_shut(side: str, change: Change, words: str) -> None:
    now = sample(**{side: change(closed(side))})
    [reason] = common_blockers(now, sample())
    assert side in reason
    assert words in reason
    assert common_blockers(now, None) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda view: view,
        but(connections=connected(link=True)),
        but(connections=connected(None)),
        but(consumers=lambda view: (consumer(outflow(view.site).name, None),)),
        queued("dr-ctl.probe.paris", 1, delivering=1),
        queued("empty"),
        queued("orders.in", 3, paused=True),
        admin_listener,
    ],
    ids=["nothing", "the peer's link is connected", "the own link is connected", "the link takes from the outflow",
         "dr-ctl's own queue is busy", "an empty queue was created", "a queue is paused",
         "another listener is open and nobody uses it"],
)  # fmt: skip
@SIDES
def test_what_replication_and_management_do_does_not_keep_it_shut(side: str, change: Change) -> None:
    now = sample(**{side: change(closed(side))})
    assert common_blockers(now, sample()) == common_blockers(now, None) == []


def test_all_reasons_are_told_at_once() -> None:
    london = replace(closed("london"), pending_acks=2, prepared=("AQID",))
    assert len(common_blockers(sample(london=london, paris=flowing(depth=4)(closed("paris"))), None)) == 3


@dataclass(eq=False)
class Broker:
    site: str
    pair: str = "orders-1"
    answers: Event = field(default_factory=Event)
    told: Any = "well"
    asked: int = 0

    def ask(self) -> Any:
        self.asked += 1
        self.answers.wait(10)
        return self.told


@pytest.fixture
def brokers() -> list[Broker]:
    london, paris = Broker("london"), Broker("paris")
    london.answers.set()
    return [london, paris]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, brokers: list[Broker]) -> Iterator[Watch]:
    monkeypatch.setattr(observer, "LATE_S", 0.05)
    watch = Watch()
    yield watch
    for item in brokers:
        item.answers.set()
    watch.close()


def told(watch: Watch, brokers: list[Broker], *, small: bool = True) -> list[Any]:
    answer, _ = watch.ask(brokers, Broker.ask, small=small)  # type: ignore[type-var]
    return answer


def settled(watch: Watch, brokers: list[Broker]) -> list[Any]:
    """What is told once every question has been answered."""
    for late in watch._late.values():
        assert late.wait(10)
    return told(watch, brokers)


def test_who_is_late_is_told_as_silent_and_asked_once_until_it_answers(watch: Watch, brokers: list[Broker]) -> None:
    _, paris = brokers
    for small in (True, True, False, True):
        local, remote = told(watch, brokers, small=small)
        assert (local, remote.role) == ("well", Role.UNKNOWN)
    assert paris.asked == 1
    paris.answers.set()
    assert settled(watch, brokers) == ["well", "well"]
    assert paris.asked == 2


def test_who_said_how_it_fails_and_is_late_again_is_told_as_it_said(watch: Watch, brokers: list[Broker]) -> None:
    _, paris = brokers
    told(watch, brokers)
    paris.told = Silent("orders-1", "paris", TimedOut("no answer within 5 s"))
    paris.answers.set()
    settled(watch, brokers)
    paris.answers.clear()
    assert told(watch, brokers)[1].role is Role.SICK
    assert told(watch, brokers, small=False)[1].role is Role.SICK


def test_how_long_the_last_in_time_has_waited_is_told_where_somebody_is_late(
    watch: Watch, brokers: list[Broker]
) -> None:
    assert watch.ask(brokers, Broker.ask, small=True)[1] >= 0.04  # type: ignore[type-var]
    for item in brokers:
        item.answers.set()
    settled(watch, brokers)
    assert watch.ask(brokers, Broker.ask, small=True)[1] == 0.0  # type: ignore[type-var]


LONDON = plugin.broker("london")
CALLS = [pause(LONDON, plugin.queue(f"orders.{n}")) for n in range(2 * MAX_IN_A_POST + 1)]


class Posts:
    """One broker; the POST of that number has no answer."""

    def __init__(self, silent: int | None = None) -> None:
        self.posts: list[Sequence[Call]] = []
        self._silent = silent

    def send(self, calls: Sequence[Call]) -> list[Outcome]:
        self.posts.append(calls)
        if len(self.posts) - 1 == self._silent:
            raise TimedOut("http://london: no answer")
        return [Done(call.summary) for call in calls]


def sent(broker: Posts) -> list[Outcome]:
    observer: Any = SimpleNamespace(brokers={"london": {plugin.PAIR: broker}})
    return Sender(observer).send(CALLS)


def test_each_is_sent_once_and_in_order() -> None:
    broker = Posts()
    requests = sent(broker)
    assert [call for post in broker.posts for call in post] == CALLS
    assert [item.text for item in requests] == [call.summary for call in CALLS]
    assert max(len(post) for post in broker.posts) <= MAX_IN_A_POST


@pytest.mark.parametrize("silent", [0, 1])
def test_what_comes_behind_a_silence_is_not_sent(silent: int) -> None:
    broker = Posts(silent)
    requests = sent(broker)
    assert len(broker.posts) == silent + 1
    words = [item.word for item in requests]
    assert words.index("unknown") == silent * MAX_IN_A_POST
    assert words.count("unknown") == MAX_IN_A_POST
    assert set(words[(silent + 1) * MAX_IN_A_POST :]) == {"refused"}
