"""What speaks against a move where the plugin joins the sites, and what must be removed before a site is activated."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dr_ctl.core.model import Role, Severity
from dr_ctl.core.patience import Patience
from dr_ctl.engine.plan import Ask
from dr_ctl.engine.ports import Move
from dr_ctl.jolokia import client
from dr_ctl.jolokia.client import Answer, Listing
from dr_ctl.jolokia.errors import BadValue
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.common.consumed import NotWhole
from dr_ctl.topologies.common.gate import Sample
from dr_ctl.topologies.common.residue import Residue
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.view import Config, Peer
from dr_ctl.topologies.console.requests import change
from dr_ctl.topologies.continuity import procedure
from dr_ctl.topologies.continuity.checks import of_move
from dr_ctl.topologies.continuity.copies import (
    BATCH,
    CALLS,
    IDS_UP_TO,
    Compared,
    batches,
    chosen,
    compare,
    echoes,
    ids,
    removals,
)
from dr_ctl.topologies.continuity.fence import ACTIVATE_SITE, DEACTIVATE_SITE
from dr_ctl.topologies.continuity.verifier import ContinuityVerifier
from dr_ctl.topologies.continuity.view import SiteView
from tests.topologies.continuity.views import bridge, broker, door, flow, queue, seen, service

LONDON, PARIS = broker("london"), broker("paris")


def findings(london: SiteView = LONDON, paris: SiteView = PARIS) -> dict[str, Severity]:
    found = of_move(
        Rules(Queues(), Drain(), Patience()), seen(london, paris), Move(Ask("swapover", "paris"), "london", {})
    )
    assert all(each.remedy for each in found if each.severity is not Severity.INFO)
    return {each.id: each.severity for each in found}


def test_nothing_speaks_against_a_pair_that_is_well() -> None:
    assert findings() == {}


def commands(view: SiteView, depth: int) -> SiteView:
    assert view.commands is not None
    return replace(view, commands=replace(view.commands, out=queue("continuity.cmd.out", depth, consumers=1)))


def serviced(site: str, **more: Any) -> SiteView:
    return replace(LONDON if site == "london" else PARIS, service=service(site, active=site == "london", **more))


SHORT = Config(("clients",), ("mirror",), None, id_cache=100)
STOPPED, PAUSED = bridge("orders.out.mirror.bridge", started=False), queue("orders.in.mirror", 4, paused=True)


@pytest.mark.parametrize(
    ("london", "paris", "finding"),
    [
        (replace(LONDON, service=None), PARIS, "DR-CONT-001 error"),
        (serviced("london", started=False), PARIS, "DR-CONT-001 error"),
        (broker("london", flow("a", address="x"), flow("b", address="x")), PARIS, "DR-CONT-002 error"),
        (broker("london", depths={"orders": 20_001}), PARIS, "DR-CONT-003 warning"),
        (broker("london", depths={"orders": 101}, config=SHORT), PARIS, "DR-CONT-003 warning"),
        (LONDON, replace(PARIS, service=service("london", active=False)), "DR-CONT-004 error"),
        (LONDON, broker("paris", flow("others")), "DR-CONT-005 error"),
        (LONDON, serviced("paris", suffixes=(".o", ".a", ".i", ".c")), "DR-CONT-005 error"),
        (LONDON, replace(PARIS, acceptors=(door("clients", started=True),)), "DR-CONT-006 error"),
        (serviced("london", delivering=False), PARIS, "DR-CONT-007 warning"),
        (broker("london", flow("orders", mirror_bridge=STOPPED)), PARIS, "DR-CONT-008 error"),
        (broker("london", flow("orders", out_acks=queue("orders.out.acks"))), PARIS, "DR-CONT-009 warning"),
        (commands(LONDON, 2), PARIS, "DR-CONT-010 warning"),
        (LONDON, broker("paris", flow("orders", in_acks=queue("orders.in.acks"))), "DR-CONT-011 error"),
        (replace(LONDON, now_ms=LONDON.now_ms + 2001), PARIS, "DR-CONT-012 warning"),
        (broker("london", flow("orders", in_mirror=PAUSED)), PARIS, "DR-CONT-015 error"),
        (replace(LONDON, version="2.19.0"), PARIS, "DR-PAIR-002 warning"),
        (LONDON, replace(PARIS, queues=(queue("orders", paused=True),)), "DR-QUEUE-002 warning"),
    ],
)
def test_each_has_its_finding(london: SiteView, paris: SiteView, finding: str) -> None:
    id_, severity = finding.split()
    assert findings(london, paris)[id_] is Severity(severity)


@pytest.mark.parametrize(
    ("view", "role", "open_"),
    [
        (LONDON, Role.SERVING, True),
        (PARIS, Role.STANDBY, False),
        # Clients can connect as soon as it is activated, whatever it delivers.
        (replace(PARIS, service=service("paris", active=True, delivering=False)), Role.SERVING, True),
        (replace(LONDON, service=None), Role.UNKNOWN, True),
        (replace(PARIS, service=None), Role.UNKNOWN, False),
        (replace(PARIS, acceptors=()), Role.UNKNOWN, False),
    ],
)
def test_the_role_follows_from_the_plugin_and_its_doors(view: SiteView, role: Role, *, open_: bool) -> None:
    assert (view.role, view.open) == (role, open_)


def paris(**more: Any) -> SiteView:
    return broker("paris", flow("orders", **more))


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (paris(to_ship=3), "3 to ship in orders.out.mirror"),
        (paris(acks=2), "2 to ship in orders.out.acks"),
        (paris(unapplied=1), "1 not applied yet in orders.in.acks"),
        (paris(in_mirror=queue("orders.in.mirror", 4, scheduled=4)), "4 in orders.in.mirror for the staging delay"),
        (paris(out_mirror=queue("orders.out.mirror")), "a bridge is not connected"),
        (paris(acks_bridge=bridge("orders.out.acks.bridge", started=False)), "orders.out.acks.bridge is stopped"),
        (commands(PARIS, 1), "1 command(s) in continuity.cmd.out"),
    ],
)
def test_what_is_under_way_keeps_the_gate_shut_and_what_is_staged_and_ready_does_not(
    view: SiteView, words: str
) -> None:
    assert words in " ".join(view.link.unsettled())
    assert len(list(view.link.unsettled())) == 1
    assert list(paris(staged=5).link.unsettled()) == []


RECIPE = procedure.open_.recipe(Queues(), Drain(), Patience())
RETURN = Move(Ask("reinstate", "london"), "paris", {})


def test_a_flag_alone_is_no_site_that_delivers_and_none_that_is_closed() -> None:
    paris = broker("paris", active=True, service=service("paris", active=True, delivering=False))
    by_flag = broker("paris", acceptors=(door("clients", started=False),), service=service("paris", active=True))
    [again] = paris.fence.opening([each for each in paris.doors if not each.started], Peer.DRAINED)
    assert [change(call).operation for call in (again, *by_flag.fence.closing([]))] == [ACTIVATE_SITE, DEACTIVATE_SITE]
    assert broker("paris").fence.opening([], Peer.DRAINED) == ()


@pytest.mark.parametrize(
    ("to_ship", "lies_there", "duplicates", "severity"),
    [(279, 4, 4, Severity.WARNING), (40, 867, 40, Severity.WARNING), (30, 0, 0, Severity.INFO)],
)
def test_what_comes_twice_at_most_is_said_before_a_return(
    to_ship: int, lies_there: int, duplicates: int, severity: Severity
) -> None:
    """What was done and has its acknowledgement is recognised: only what still lies in its queue can come twice."""
    london = broker("london", flow("orders", to_ship=to_ship, acks=9), depths={"orders": lies_there}, active=False)
    both = seen(london, broker("paris", flow("orders"), flow("new"), active=True))

    found = {each.id: each for each in RECIPE.why_not(both, RETURN)}

    assert london.link.residue == Residue(to_ship, 9, duplicates)
    assert f"at most {duplicates} of the messages" in found["DR-RETURN-005"].text
    assert found["DR-RETURN-005"].severity is severity
    assert "DR-CONT-005" in found, "nothing of a queue that only one of them has could be compared"


def told(here: str, there: str, staged: str, behind: str = "") -> Compared:
    sets = (frozenset(each) for each in (here, behind, there, staged))
    return Compared("orders", *sets, counted=2)


@pytest.mark.parametrize(
    ("here", "there", "staged", "missing", "done", "surplus"),
    [
        ("abc", "", "abc", "", "", ""),
        ("abc", "a", "bc", "", "", ""),
        ("abc", "", "ab", "c", "", ""),  # a rollback deleted the copy of c
        ("ab", "", "abc", "", "", "c"),  # the acknowledgement of c was lost
        ("ab", "abc", "", "", "c", ""),  # the same, where c had been delivered before
        ("abc", "ab", "abc", "", "", "ab"),  # a and b came back to where they were written
        ("", "a", "ab", "", "a", "ab"),
    ],
)
def test_the_ids_say_what_to_do(here: str, there: str, staged: str, missing: str, done: str, surplus: str) -> None:
    compared = told(here, there, staged)

    assert (compared.missing, compared.done, compared.surplus) == (
        frozenset(missing),
        frozenset(done),
        frozenset(surplus),
    )
    left = (compared.there or frozenset()) - compared.done, (compared.staged or frozenset()) - compared.surplus
    assert left[0] | left[1] == frozenset(here) - compared.missing
    assert not left[0] & left[1]


@pytest.mark.parametrize(("there", "staged"), [("ab", ""), ("", "ab"), ("a", "b"), ("a", "ab")])
def test_what_the_site_that_is_left_has_not_delivered_is_never_removed(there: str, staged: str) -> None:
    compared = told("", there, staged, behind="abc")
    assert compared.undelivered == frozenset("ab")
    left = (compared.there or frozenset()) - compared.done | (compared.staged or frozenset()) - compared.surplus
    assert left == frozenset("ab")


class Console:
    """Answers the listings of queues by the ids that lie in them: plain, scheduled."""

    url = "http://here"

    def __init__(self, **queues: tuple[list[str], list[str]]) -> None:
        self._queues = queues

    def look(self, requests: list[client.Ask], **_: Any) -> list[Answer]:
        return [Answer(None, json.dumps(self._told(each))) for each in requests]

    def _told(self, ask: client.Ask) -> Any:
        plain, scheduled = self._queues[ask.bean.split('queue="')[1].rstrip('"').replace(".", "_")]
        if ask.listing is Listing.COUNT_BY:
            return {name: plain.count(name) for name in plain}
        return [{"_AMQ_DUPL_ID": name} for name in scheduled]


def test_what_is_scheduled_is_there_too() -> None:
    """Left out, it would look as if it had been acknowledged, and its copy would be removed."""
    console: Any = Console(orders=(["a"], ["b"]))
    assert ids(console, [queue("orders", 2)]) == [frozenset("ab")]


@pytest.mark.parametrize(("plain", "depth"), [(["a"], 2), (["a", "b"], 1), (["a", "null"], 2), (["a", "a"], 2)])
def test_a_queue_that_could_not_be_read_as_a_whole_is_not_known(plain: list[str], depth: int) -> None:
    console: Any = Console(orders=(plain, []))
    assert ids(console, [queue("orders", depth)]) == [None]


def test_an_answer_that_is_no_list_of_ids_is_an_error() -> None:
    class Odd(Console):
        def _told(self, ask: client.Ask) -> Any:
            return 3

    console: Any = Odd()

    with pytest.raises(BadValue):
        ids(console, [queue("orders", 2)])


def sites(plain: str, there: str, staged: str, *, depth: int, acked: int) -> tuple[Any, Any, Any, Any]:
    """Two consoles by what is listed of `orders`, here and there and staged there, and both views."""
    london = replace(broker("london"), queues=(queue("orders", depth, acked=acked),))
    paris = broker("paris", flow("orders", staged=len(staged)), depths={"orders": len(there)})
    here, other = (
        Console(orders=([*plain], []), orders_in_mirror=([], [])),
        Console(orders=([*there], []), orders_in_mirror=([*staged], [])),
    )
    return here, other, london, paris


def test_nothing_is_removed_of_what_is_not_known() -> None:
    here, there, london, paris = sites("a", "", "abc", depth=2, acked=0)
    [compared] = compare(here, there, london, paris)
    assert not compared.known
    assert list(removals(london, paris, [compared])) == []


@pytest.mark.parametrize(
    ("there", "acked", "unproven", "gone"),
    [
        # Each message is removed where it lies.
        ("c", 2, "", [('orders.in.mirror"', "('b')"), ('orders"', "('c')")]),
        # What the counters of the site that is left do not cover stays: a store that came back empty holds none of the
        # messages whose last copies wait at the other site.
        *(("ac", acked, "bc", [('orders.in.mirror"', "('a')")]) for acked in (0, 1)),
    ],
)
def test_what_was_consumed_is_removed_where_it_lies(there: str, acked: int, unproven: str, gone: Any) -> None:
    here, other, london, paris = sites("a", there, "ab", depth=1, acked=acked)
    compared = compare(here, other, london, paris)
    calls = list(removals(london, paris, compared))
    assert [each.unproven for each in compared] == [frozenset(unproven)]
    told = [(change(call).bean.split('queue="')[1], change(call).arguments) for call in calls]
    assert told == [(bean, (f"_AMQ_DUPL_ID IN {ids}",)) for bean, ids in gone]


def test_nothing_is_removed_by_a_listing_of_a_queue_that_moves() -> None:
    here, there, london, paris = sites("a", "", "b", depth=1, acked=2)
    compared = compare(here, there, london, paris)
    with pytest.raises(NotWhole):
        list(removals(broker("london"), paris, compared))


def test_an_echo_is_staged_and_in_the_queue_of_the_same_site() -> None:
    """Whatever else is staged there may be the only copy, whether its queue has it at the other site or not."""
    paris = broker("paris", flow("orders", staged=3), depths={"orders": 2})
    there: Any = Console(orders=(["a", "b"], []), orders_in_mirror=(["b", "null"], ["c"]))
    assert {name: gone.ids for name, gone in echoes(there, paris).items()} == {"orders": frozenset("b")}


@pytest.mark.parametrize(
    ("staged", "depth", "delivers"),
    [(1, 0, False), (0, 1, False), (1, 1, True), (1, IDS_UP_TO, False)],
    ids=["nothing in the queue", "nothing staged", "its bridge has taken it", "too deep"],
)
def test_nobody_is_asked_for_echoes_where_none_can_be_removed(staged: int, depth: int, delivers: bool) -> None:
    delivering = bridge("orders.in.mirror.bridge", started=delivers)
    paris = broker("paris", flow("orders", staged=staged, target_bridge=delivering), depths={"orders": depth})
    assert echoes(cast("Any", None), paris) == {}


def test_many_are_removed_in_batches_and_quotes_stay_inside() -> None:
    paris = broker("paris", flow("orders", staged=BATCH + 1))
    names = frozenset(f"it's-{n}" for n in range(BATCH + 1))
    many = Compared("orders", frozenset(), frozenset(), frozenset(), names, counted=len(names))
    assert len(list(removals(broker("london"), paris, [many]))) == 2
    assert chosen(["it's"]) == "_AMQ_DUPL_ID IN ('it''s')"


@pytest.mark.parametrize("number", [1, BATCH * CALLS, BATCH * CALLS + 1, 500_000])
def test_however_many_are_removed_the_calls_are_few_and_each_is_removed_once(number: int) -> None:
    names = {f"{n}" for n in range(number)}
    made = batches(names)
    assert len(made) <= CALLS
    assert sorted(name for some in made for name in some) == sorted(names)


@pytest.mark.parametrize(
    ("staged_here", "flows", "told"),
    [
        ((["b"], []), (flow("orders"),), "staged at london and never delivered there: orders"),
        (([], []), (flow("others"),), "messages in flows that only one of london and paris has: orders"),
    ],
)
def test_the_gate_stays_shut_where_ids_alone_do_not_show_it(staged_here: Any, flows: Any, told: str) -> None:
    """What both sites hold as often may never have been delivered; a queue without a flow has nothing to compare."""
    here, there, london, paris = sites("a", "ab", "", depth=1, acked=0)
    here = Console(orders=(["a"], []), orders_in_mirror=staged_here)
    london = replace(london, flows=(flow("orders", staged=len(staged_here[0])),))
    paris = replace(paris, flows=flows)
    consoles = {"london": here, "paris": there}
    brokers = {site: {london.pair: SimpleNamespace(reader=lambda each=each: each)} for site, each in consoles.items()}
    observer: Any = SimpleNamespace(brokers=brokers, patience=Patience())
    move: Any = SimpleNamespace(source="london", target="paris", ask=SimpleNamespace(accept_difference={}))
    assert ContinuityVerifier(observer, 1.0).same(Sample(0.0, london, paris), move).text == told
