"""The gate: each of its conditions alone keeps it shut, at either site; what is not known never counts as zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dr_ctl.topologies.common.gate import Sample, why_not_yet
from dr_ctl.topologies.mirror.view import BrokerView
from tests.topologies.mirror.views import (
    ADMIN,
    CLIENTS,
    MIRROR,
    broker,
    connection,
    consumer,
    door,
    doors,
    link_connection,
    outflow,
    queue,
    with_queue,
)

Change = Callable[[BrokerView], BrokerView]
SIDES = pytest.mark.parametrize("side", ["london", "paris"])


def closed(site: str) -> BrokerView:
    return broker(site, queue("orders.in", 3, site=site), serving=False)


def sample(**changed: BrokerView) -> Sample:
    """Both sites closed and settled, but for those given."""
    return Sample(0.0, changed.get("london", closed("london")), changed.get("paris", closed("paris")))


def admin_door(view: BrokerView) -> BrokerView:
    return replace(view, acceptors=(*view.acceptors, door("admin", ADMIN, site=view.site)))


def test_the_gate_opens_where_all_holds() -> None:
    assert why_not_yet(sample(), None) == []
    assert why_not_yet(sample(), sample()) == []


@SIDES
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda view: replace(view, acceptors=doors(view.site, serving=True)), "lets clients in"),
        (lambda view: replace(view, connections=(connection(CLIENTS),)), "1 client connection(s)"),
        (
            lambda view: replace(admin_door(view), connections=(connection(ADMIN), connection(ADMIN))),
            "2 client connection(s), the first from 10.1.2.3:50412",
        ),
        (
            lambda view: replace(view, connections=(link_connection(view.site), connection(MIRROR))),
            "a client on the door of the link: STOMP connection from 10.1.2.3:50412",
        ),
        (lambda view: replace(view, consumers=(consumer(),)), "a consumer of orders.in: client billing"),
        (lambda view: replace(view, consumers=(consumer(port=None),)), "a consumer of orders.in"),
        (lambda view: with_queue(view, queue(depth=3, site=view.site, delivering=2)), "in delivery: orders.in"),
        (lambda view: with_queue(view, queue(depth=3, site=view.site, delivering=-1)), "orders.in cannot be told"),
        (lambda view: replace(view, prepared=("AQID",)), "1 prepared transaction(s)"),
        (lambda view: replace(view, links=(replace(view.links[0], started=False),)), "is not started"),
        (lambda view: replace(view, links=(replace(view.links[0], connected=False),)), "is not attached"),
        (lambda view: with_queue(view, outflow(view.site, consumers=0)), "is not attached"),
        (lambda view: with_queue(view, outflow(view.site, depth=4)), "4 to ship"),
        (lambda view: with_queue(view, outflow(view.site, delivering=1)), "0 to ship"),
        (lambda view: replace(view, pending_acks=276), "276 acknowledgement(s) not applied yet"),
        (
            lambda view: with_queue(
                view, queue("$.artemis.internal.sf.cluster", 5, site=view.site, internal=True, added=0)
            ),
            "5 between brokers of the site",
        ),
        (
            lambda view: replace(view, config=replace(view.config, link="mistyped")),
            "the link or its outflow is not there",
        ),
        (lambda view: replace(view, queues=tuple(view.business.values())), "the link or its outflow is not there"),
    ],
    ids=[
        "a door is open",
        "a client is connected",
        "clients are connected through another door",
        "a client is connected through the link's door",
        "a consumer is there",
        "a consumer whose door is not known is there",
        "a message is in delivery",
        "less than nothing is in delivery",
        "a transaction is prepared",
        "the link is stopped",
        "the link is not connected",
        "nobody takes from the outflow",
        "something is to ship",
        "something is being shipped",
        "acknowledgements are pending",
        "something is between brokers of the site",
        "the link cannot be told",
        "the outflow cannot be told",
    ],
)
def test_each_condition_alone_keeps_it_shut(side: str, change: Change, words: str) -> None:
    shut = sample(**{side: change(closed(side))})

    for before in (None, shut):
        [reason] = why_not_yet(shut, before)
        assert reason.startswith(side)
        assert words in reason


def test_without_a_link_from_the_source_it_stays_shut_and_one_back_is_not_missed() -> None:
    unlinked = {site: replace(closed(site), links=(), pending_acks=0) for site in ("london", "paris")}

    assert why_not_yet(sample(london=unlinked["london"]), None) == ["london has no link to paris: nothing is shipped"]
    assert why_not_yet(sample(paris=unlinked["paris"]), None) == []
    assert why_not_yet(sample(paris=replace(unlinked["paris"], pending_acks=4)), None) == [
        "paris: 4 acknowledgement(s) not applied yet"
    ]


@SIDES
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda view: with_queue(view, queue(depth=3, site=view.site, added=4)), "orders.in is still being added to"),
        (lambda view: with_queue(view, queue("new", 1, site=view.site)), "new is still being added to"),
        (lambda view: replace(view, start="1795259999999"), "was restarted"),
    ],
    ids=["a queue was added to", "a queue came and was added to", "the broker was restarted"],
)
def test_what_moved_since_the_window_began_keeps_it_shut(side: str, change: Change, words: str) -> None:
    now = sample(**{side: change(closed(side))})

    [reason] = why_not_yet(now, sample())

    assert side in reason
    assert words in reason
    assert why_not_yet(now, None) == []


def test_messages_that_came_and_went_between_two_samples_are_noticed() -> None:
    """The depth is what it was: only the counter tells."""
    now = sample(london=with_queue(closed("london"), queue(depth=3, added=9, acked=6, removed=6)))

    assert why_not_yet(now, sample()) == ["london: orders.in is still being added to"]


@pytest.mark.parametrize(
    "change",
    [
        lambda view: replace(view, connections=(link_connection(view.site),)),
        lambda view: replace(view, connections=(connection(None),)),
        lambda view: replace(view, consumers=(consumer(outflow(view.site).name, None),)),
        lambda view: with_queue(view, queue("dr-ctl.probe.paris", 1, site=view.site, delivering=1)),
        lambda view: with_queue(view, queue("empty", site=view.site)),
        lambda view: with_queue(view, queue("orders.in", 3, site=view.site, paused=True)),
        admin_door,
    ],
    ids=[
        "the peer's link is connected",
        "the own link is connected",
        "the link takes from the outflow",
        "dr-ctl's own queue is busy",
        "an empty queue was created",
        "a queue is paused",
        "another door is open and nobody uses it",
    ],
)
@SIDES
def test_what_replication_and_management_do_does_not_keep_it_shut(side: str, change: Change) -> None:
    assert why_not_yet(sample(**{side: change(closed(side))}), sample()) == []


def test_all_reasons_are_told_at_once() -> None:
    london = replace(closed("london"), pending_acks=2, prepared=("AQID",))
    paris = with_queue(closed("paris"), outflow("paris", depth=4))

    assert len(why_not_yet(sample(london=london, paris=paris), None)) == 3
