"""What a reading makes of the plugin's answers, what speaks against a move, and what must be removed before it: by
id."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dr_ctl.core.document import document
from dr_ctl.core.errors import TimedOut
from dr_ctl.core.model import Role, Severity
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.plan import Spec
from dr_ctl.engine.ports import Failed, Move, Outcome
from dr_ctl.jolokia import client
from dr_ctl.jolokia.client import Answer, Listing, Read, Search
from dr_ctl.jolokia.http import BadValue, PolicyRefused
from dr_ctl.jolokia.values import Fields
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.artemis.broker import CREATE_FILTERED
from dr_ctl.topologies.common.calls import Request, items
from dr_ctl.topologies.common.checks import Case
from dr_ctl.topologies.common.consumed import IncompleteListing
from dr_ctl.topologies.common.gate import PairReading
from dr_ctl.topologies.common.rules import Rules
from dr_ctl.topologies.common.session import change
from dr_ctl.topologies.common.verbs import proving
from dr_ctl.topologies.common.view import Config, PeerState, Residue, link_figures
from dr_ctl.topologies.continuity import procedure, reinstate
from dr_ctl.topologies.continuity import view as plugin
from dr_ctl.topologies.continuity.checks import CHECKS, unreplicated
from dr_ctl.topologies.continuity.copies import (
    BATCH,
    CALLS,
    IDS_UP_TO,
    Comparison,
    add_uncopied,
    compare,
    id_batches,
    list_ids,
    read_ids,
    removal_calls,
    second_copies,
    selector,
)
from dr_ctl.topologies.continuity.reading import read, read_serving
from dr_ctl.topologies.continuity.tools import ContinuityGate, PluginTimeouts
from dr_ctl.topologies.continuity.view import ContinuitySnapshot, Flow, SiteView
from tests.topologies import made
from tests.topologies.continuity.views import PAIR, bridge, broker, flow, listener, queue, service, snapshot

LONDON, PARIS = broker("london"), broker("paris")


def findings(london: SiteView = LONDON, paris: SiteView = PARIS) -> dict[str, Severity]:
    move = Move(Spec("swapover", "paris"), "london", {})
    of_move = CHECKS.of_move(Case(Rules(Queues(), Drain(), Timeouts()), snapshot(london, paris), move))
    assert all(finding.remedy for finding in of_move if finding.severity is not Severity.INFO)
    return {finding.id: finding.severity for finding in of_move}


def test_nothing_speaks_against_a_pair_that_is_well() -> None:
    assert findings() == {}


def commands(view: SiteView, depth: int) -> SiteView:
    assert view.commands is not None
    return replace(view, commands=replace(view.commands, out=queue("continuity.cmd.out", depth, consumers=1)))


def serviced(site: str, **more: Any) -> SiteView:
    return replace(LONDON if site == "london" else PARIS, service=service(site, active=site == "london", **more))


SHORT = Config(("clients",), ("mirror",), None, id_cache=100)
DROPPING = queue("orders.out.mirror", consumers=1, routing="multicast")
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
        (LONDON, replace(PARIS, acceptors=(listener("clients", started=True),)), "DR-CONT-006 error"),
        (serviced("london", delivering=False), PARIS, "DR-CONT-007 warning"),
        (broker("london", flow("orders", mirror_bridge=STOPPED)), PARIS, "DR-CONT-008 error"),
        (broker("london", flow("orders", out_acks=queue("orders.out.acks"))), PARIS, "DR-CONT-009 warning"),
        (commands(LONDON, 2), PARIS, "DR-CONT-010 warning"),
        (LONDON, broker("paris", flow("orders", in_acks=queue("orders.in.acks"))), "DR-CONT-011 error"),
        (replace(LONDON, now_ms=LONDON.now_ms + 2001), PARIS, "DR-CONT-012 warning"),
        (replace(LONDON, to_compare=True, left_out=("orders",)), PARIS, "DR-CONT-014 warning"),
        (broker("london", flow("orders", staging=PAUSED)), PARIS, "DR-CONT-015 error"),
        (broker("london", flow("orders", out_mirror=DROPPING)), PARIS, "DR-CONT-021 warning"),
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
def test_the_role_follows_from_the_plugin_and_its_listeners(view: SiteView, role: Role, *, open_: bool) -> None:
    assert (view.role, view.open) == (role, open_)


def paris(**more: Any) -> SiteView:
    return broker("paris", flow("orders", **more))


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (paris(to_ship=3), "3 to ship in orders.out.mirror"),
        (paris(acks=2), "2 to ship in orders.out.acks"),
        (paris(unapplied=1), "1 not applied yet in orders.in.acks"),
        (paris(staging=queue("orders.in.mirror", 4, scheduled=4)), "4 in orders.in.mirror for the staging delay"),
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


RECIPE = procedure.TOPOLOGY.recipe(Queues(), Drain(), Timeouts())
RETURN = Move(Spec("reinstate", "london"), "paris", {})


def test_a_flag_alone_is_no_site_that_delivers_and_none_that_is_closed() -> None:
    paris = broker("paris", active=True, service=service("paris", active=True, delivering=False))
    by_flag = broker("paris", acceptors=(listener("clients", started=False),), service=service("paris", active=True))
    [again] = paris.fence.opening([item for item in paris.listeners if not item.started], PeerState.DRAINED)
    assert [change(call.request).operation for call in (again, *by_flag.fence.closing([]))] == [
        plugin.ACTIVATE_SITE,
        plugin.DEACTIVATE_SITE,
    ]
    assert broker("paris").fence.opening([], PeerState.DRAINED) == ()


@pytest.mark.parametrize(
    ("to_ship", "lies_there", "duplicates", "severity"),
    [(279, 4, 4, Severity.WARNING), (40, 867, 40, Severity.WARNING), (30, 0, 0, Severity.INFO)],
)
def test_what_comes_twice_at_most_is_said_before_a_return(
    to_ship: int, lies_there: int, duplicates: int, severity: Severity
) -> None:
    """What was done and has its acknowledgement is recognised: only what still lies in its queue can come twice."""
    london = broker("london", flow("orders", to_ship=to_ship, acks=9), depths={"orders": lies_there}, active=False)
    both = snapshot(london, broker("paris", flow("orders"), flow("new"), active=True))

    by_name = {reason.id: reason for reason in RECIPE.why_not(both, RETURN)}

    assert london.link.residue == Residue(to_ship, 9, duplicates)
    assert f"at most {duplicates} of the messages" in by_name["DR-RETURN-005"].text
    assert by_name["DR-RETURN-005"].severity is severity
    assert "DR-CONT-005" in by_name, "nothing of a queue that only one of them has could be compared"


def told(here: str, there: str, staged: str, behind: str = "") -> Comparison:
    sets = (frozenset(case) for case in (here, behind, there, staged))
    return Comparison("orders", *sets, counted=2)


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

    assert [compared.missing, compared.consumed, compared.surplus] == [*map(frozenset, (missing, done, surplus))]
    left = compared.remote - compared.consumed, compared.staged - compared.surplus
    assert left[0] | left[1] == frozenset(here) - compared.missing
    assert not left[0] & left[1]


@pytest.mark.parametrize(("there", "staged"), [("ab", ""), ("", "ab"), ("a", "b"), ("a", "ab")])
def test_what_the_site_that_is_left_has_not_delivered_is_never_removed(there: str, staged: str) -> None:
    compared = told("", there, staged, behind="abc")
    assert compared.undelivered == frozenset("ab")
    left = compared.remote - compared.consumed | compared.staged - compared.surplus
    assert left == frozenset("ab")


class Listings:
    """Answers the listings of queues by the ids that lie in them: plain, scheduled, held by clients."""

    url = "http://here"

    def __init__(self, **queues: tuple[list[str], list[str]] | tuple[list[str], list[str], list[str]]) -> None:
        self._queues = queues

    def read(self, requests: list[client.Query], **_: Any) -> list[Answer]:
        return [Answer(None, json.dumps(self._told(request))) for request in requests]

    def _told(self, ask: client.Query) -> Any:
        name = ask.bean.split('queue="')[1].rstrip('"').replace(".", "_")
        plain, scheduled, held = (*self._queues.get(name, ([], [])), [])[:3]
        if ask.listing is Listing.COUNT_BY:
            return {name: plain.count(name) for name in plain}
        rows = [{"_AMQ_DUPL_ID": name} for name in (scheduled if ask.listing is Listing.SCHEDULED else held)]
        return rows if ask.listing is Listing.SCHEDULED else [{"elements": rows}]


def test_what_a_client_holds_does_not_lack_its_copy_and_what_waits_does() -> None:
    """The plugin tells what is acknowledged in a transaction before its commit: the copy goes first."""
    london, paris = (
        broker(site, flow("orders"), depths={"orders": 2}, active=site == "london") for site in ("london", "paris")
    )
    local: Any = Listings(orders=(["waits"], [], ["held"]))
    source, _ = add_uncopied(local, cast("Any", Listings()), replace(london, to_compare=True), paris)

    assert (source.uncopied, source.held) == ({"orders": {"waits", "held"}}, {"orders": {"held"}})
    [finding] = unreplicated(source, paris, Move(Spec("swapover", "paris"), "london", {}))
    assert finding.text == "messages of london that have no copy at paris: orders: 1 (waits)"


@pytest.mark.parametrize(("waits", "is_held"), [(1, 2), (0, 1), (1, 3), (3, 3)])
def test_a_message_that_goes_on_between_two_questions_is_seen(waits: int, is_held: int) -> None:
    """It is due, waits after so many questions, and is held after so many."""

    class Moving(Listings):
        asked = 0

        def _told(self, ask: client.Query) -> Any:
            places: list[list[str]] = [[], [], []]
            places[1 if self.asked < waits else 0 if self.asked < is_held else 2].append("a")
            self.asked += 1
            self._queues = {"orders": (places[0], places[1], places[2])}
            return super()._told(ask)

    assert read_ids(cast("Any", Moving()), [queue("orders", 1)]) == [frozenset("a")]


@pytest.mark.parametrize(("plain", "depth"), [(["a"], 2), (["a", "b"], 1), (["a", "null"], 2), (["a", "a"], 2)])
def test_a_queue_that_could_not_be_read_as_a_whole_is_not_known(plain: list[str], depth: int) -> None:
    console: Any = Listings(orders=(plain, []))
    assert list_ids(console, [queue("orders", depth)]) == [None]


def test_an_answer_that_is_no_list_of_ids_is_an_error() -> None:
    class Variation(Listings):
        def _told(self, ask: client.Query) -> Any:
            return 3

    console: Any = Variation()

    with pytest.raises(BadValue):
        list_ids(console, [queue("orders", 2)])


def sites(plain: str, there: str, staged: str, *, depth: int, acked: int) -> tuple[Any, Any, Any, Any]:
    """Two consoles by what is listed of `orders`, here and there and staged there, and both views."""
    london = replace(broker("london"), queues=(queue("orders", depth, acked=acked),))
    paris = broker("paris", flow("orders", staged=len(staged)), depths={"orders": len(there)})
    local, other = (
        Listings(orders=([*plain], []), orders_in_mirror=([], [])),
        Listings(orders=([*there], []), orders_in_mirror=([*staged], [])),
    )
    return local, other, london, paris


def test_nothing_is_removed_of_what_is_not_known() -> None:
    local, remote, london, paris = sites("a", "", "abc", depth=2, acked=0)
    assert compare(local, remote, london, paris) == ([], ["orders"])


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
    local, other, london, paris = sites("a", there, "ab", depth=1, acked=acked)
    compared, _ = compare(local, other, london, paris)
    calls = list(removal_calls(london, paris, compared))
    assert [item.unproven for item in compared] == [frozenset(unproven)]
    rows = [(change(call.request).bean.split('queue="')[1], change(call.request).arguments) for call in calls]
    assert rows == [(bean, (f"_AMQ_DUPL_ID IN {ids}",)) for bean, ids in gone]


def test_nothing_is_removed_by_a_listing_of_a_queue_that_moves() -> None:
    local, remote, london, paris = sites("a", "", "b", depth=1, acked=2)
    compared, _ = compare(local, remote, london, paris)
    with pytest.raises(IncompleteListing):
        list(removal_calls(broker("london"), paris, compared))


def test_an_echo_is_staged_and_in_the_queue_of_the_same_site() -> None:
    """Whatever else is staged there may be the only copy, whether its queue has it at the other site or not."""
    paris = broker("paris", flow("orders", staged=3), depths={"orders": 2})
    remote: Any = Listings(orders=(["a", "b"], []), orders_in_mirror=(["b", "null"], ["c"]))
    assert {name: gone.ids for name, gone in second_copies(remote, paris).items()} == {"orders": frozenset("b")}


@pytest.mark.parametrize(
    ("staged", "depth", "delivers"),
    [(1, 0, False), (0, 1, False), (1, 1, True), (1, IDS_UP_TO, False)],
    ids=["nothing in the queue", "nothing staged", "its bridge has taken it", "too deep"],
)
def test_nobody_is_asked_for_second_copies_where_none_can_be_removed(staged: int, depth: int, delivers: bool) -> None:
    delivering = bridge("orders.in.mirror.bridge", started=delivers)
    paris = broker("paris", flow("orders", staged=staged, target_bridge=delivering), depths={"orders": depth})
    assert second_copies(cast("Any", Listings), paris) == {}  # the class answers nothing


def test_many_are_removed_in_batches_and_quotes_stay_inside() -> None:
    paris = broker("paris", flow("orders", staged=BATCH + 1))
    names = frozenset(f"it's-{n}" for n in range(BATCH + 1))
    many = Comparison("orders", frozenset(), frozenset(), frozenset(), names, counted=len(names))
    assert len(list(removal_calls(broker("london"), paris, [many]))) == 2
    assert selector(["it's"]) == "_AMQ_DUPL_ID IN ('it''s')"


@pytest.mark.parametrize("number", [1, BATCH * CALLS, BATCH * CALLS + 1, 500_000])
def test_however_many_are_removed_the_calls_are_few_and_each_is_removed_once(number: int) -> None:
    names = {f"{n}" for n in range(number)}
    made = list(id_batches(names))
    assert len(made) <= CALLS
    assert sorted(name for some in made for name in some) == sorted(names)


@pytest.mark.parametrize(
    ("staged_here", "flows", "told"),
    [
        ((["b"], []), (flow("orders"),), "staged at london and never delivered there: orders: 1 (b)"),
        (([], []), (flow("others"),), "messages in flows that only one of london and paris has: orders"),
    ],
)
def test_the_gate_stays_shut_where_ids_alone_do_not_show_it(staged_here: Any, flows: Any, told: str) -> None:
    """What both sites hold as often may never have been delivered; a queue without a flow has nothing to compare."""
    local, remote, london, paris = sites("a", "ab", "", depth=1, acked=0)
    local = Listings(orders=(["a"], []), orders_in_mirror=staged_here)
    london = replace(london, flows=(flow("orders", staged=len(staged_here[0])),))
    paris = replace(paris, flows=flows)
    consoles = {"london": local, "paris": remote}
    brokers = {
        site: {london.pair: SimpleNamespace(reader=lambda options=console: options)}
        for site, console in consoles.items()
    }
    observer: Any = SimpleNamespace(brokers=brokers, timeouts=Timeouts())
    move: Any = SimpleNamespace(source="london", target="paris", spec=SimpleNamespace(accept_difference={}))
    assert ContinuityGate(observer, 1.0).compare(PairReading(0.0, london, paris), move).text == told


SERVER = 'org.apache.activemq.artemis:broker="london"'
SERVICE = f'{SERVER},component=continuity,name="continuity.service"'
ZERO = {
    "MessageCount": 0, "DeliveringCount": 0, "ScheduledCount": 0, "ConsumerCount": 1, "Paused": False,
    "MessagesAdded": 0, "MessagesAcknowledged": 0,
}  # fmt: skip
ALL = ZERO | {
    "Name": "", "MessagesExpired": 0, "MessagesKilled": 0, "Durable": True, "Temporary": False, "RingSize": -1,
    "LastValue": False, "DeadLetterAddress": "DLQ", "ExpiryAddress": "ExpiryQueue", "Filter": None,
}  # fmt: skip
ENDS = {"OutflowMirror": "out.mirror", "OutflowAcks": "out.acks", "InflowMirror": "in.mirror", "InflowAcks": "in.acks"}


class Console:
    """Answers the requests of a reading by their kind, as the brokers do."""

    url, activation = "http://london", ""

    def __init__(self, *, moved: bool = True, plugin: bool = True) -> None:
        self.moved, self.plugin = moved, plugin
        self.subject = ALL | {"Name": "orders"}
        self.held: list[Any] = []

    def read(self, requests: list[Any], **_: Any) -> list[Answer]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Answer:
        if isinstance(request, Search):
            return Answer(None, [SERVICE] if self.plugin else [])
        if isinstance(request, client.Query):
            if request.listing is Listing.DELIVERING:
                return Answer(None, json.dumps(self.held))
            if request.listing is Listing.PREPARED:
                return Answer(None, "")
            if request.listing is Listing.TOPOLOGY:
                return Answer(None, "[]")
            return Answer(None, json.dumps({"data": [], "count": 0}))
        return self._read(request)

    def _read(self, request: Read) -> Answer:
        if request.bean == SERVICE:
            return Answer(None, self._service()) if self.plugin else Answer(PolicyRefused("forbidden"))
        if request.bean == SERVER:
            group = {"Backup": False, "SharedStore": False}
            return Answer(None, {"Version": "2.11.0", "NodeID": "node", **group})
        if request.bean.startswith("java.lang"):
            return Answer(None, {"StartTime": 1000, "Uptime": 500})
        if "component=acceptors" in request.bean:
            bean = f'{SERVER},component=acceptors,name="clients"'
            return Answer(None, {bean: {"Name": "clients", "Started": True, "Parameters": {"port": "61616"}}})
        if "subcomponent=flows" in request.bean:
            return Answer(None, {f'{SERVICE},subcomponent=flows,flow="orders"': self._flow()} if self.plugin else {})
        return Answer(None, self._pattern(request.bean))

    def _pattern(self, bean: str) -> dict[str, Any]:
        if "component=bridges" in bean or "bridge=*" in bean:
            return self._bridges() if ("bridge=*" in bean) is self.moved else {}
        subject = {f'{SERVER},component=addresses,address="orders",routing-type="anycast",queue="orders"': self.subject}
        if "component=addresses" in bean:
            return subject
        names = [f"orders.{kind}" for kind in ("out.mirror", "out.acks", "in.mirror", "in.acks")]
        return subject | {self._queue(name): ZERO for name in (*names, "continuity.cmd.out", "continuity.cmd.in")}

    def _queue(self, name: str) -> str:
        where = "component=continuity" if self.moved else "component=addresses"
        return f'{SERVER},{where},address="{name}",routing-type="anycast",queue="{name}"'

    def _bridges(self) -> dict[str, Any]:
        names = [f"orders.{kind}.bridge" for kind in ("out.mirror", "out.acks", "in.mirror")]
        key = "bridge" if self.moved else "component=bridges,name"
        options = {"Started": True, "MessagesPendingAcknowledgement": 7, "MessagesAcknowledged": 5}
        return {f'{SERVER},{key}="{name}"': {"Name": name, **options} for name in (*names, "continuity.cmd.out.bridge")}

    def _flow(self) -> dict[str, str]:
        own = {"SubjectQueueName": "orders", "SubjectAddressName": "orders"}
        named = {f"{kind}Name": f"orders.{end}" for kind, end in ENDS.items()}
        bridges = {"OutflowMirror": "out.mirror", "OutflowAcks": "out.acks", "Target": "in.mirror"}
        return own | named | {f"{kind}BridgeName": f"orders.{end}.bridge" for kind, end in bridges.items()}

    def _service(self) -> dict[str, Any]:
        flags = {"SiteActivated": True, "Delivering": True, "ServiceStarted": "true", "CommandManagerStarted": "true"}
        suffixes = {f"{kind}Suffix": f".{end}" for kind, end in ENDS.items()}
        times = {"InflowStagingDelay": "2000", "BridgeInterval": "1000"}
        return {"SiteId": "london", "CommandDestinationPrefix": "continuity.cmd", **flags, **suffixes, **times}


def seen_by(console: Console) -> Any:
    value: Any = console
    return read(value, pair="orders-1", site="london", config=Config(("clients",), None, None), broker="london")


@pytest.mark.parametrize("moved", [True, False])
def test_the_plugins_beans_are_found_where_they_are(*, moved: bool) -> None:
    view = seen_by(Console(moved=moved))
    [flow] = view.flows
    assert (flow.queue, flow.mirror_bridge.acked, flow.target_bridge.started) == ("orders", 5, True)
    assert list(view.business) == ["orders"]
    assert view.commands.out.name == "continuity.cmd.out"
    assert (view.link.attached, view.link.to_ship, view.now_ms, view.start) == (True, 0, 1500, "1000")


def test_a_broker_whose_plugin_has_not_started_is_a_view_and_not_an_error() -> None:
    """Reading a bean that is not there is answered as forbidden by these versions."""
    console: Any = Console(plugin=False)
    view = seen_by(console)
    assert (view.service, view.flows, view.commands, view.link.attached) == (None, (), None, None)
    assert read_serving(console, "london", timeout_s=1.0) == (False, ("clients",))


@pytest.mark.parametrize(("consumers", "depth", "delivering"), [(0, 2, 1), (1, 3, 2)])
def test_what_nobody_consumes_is_in_delivery_only_as_listed(consumers: int, depth: int, delivering: int) -> None:
    """With a consumer the count stands: what a cut would roll back is listed nowhere."""
    console = Console()
    console.subject |= {"MessageCount": 3, "DeliveringCount": 2, "ConsumerCount": consumers}
    console.held = [{"consumerName": "c", "elements": [{"messageID": 1}]}]
    orders = seen_by(console).business["orders"]
    assert (orders.depth, orders.delivering) == (depth, delivering)
    if not consumers:
        console.held = [{"consumerName": "c"}]  # a listing of another shape
        with pytest.raises(BadValue):
            seen_by(console)


OWING = broker("london", flow("orders", to_ship=3, acks=2, unapplied=1))
UNREAD = replace(broker("paris"), service=None, flows=(), commands=None)
THERE: Any = SimpleNamespace(source="london", target="paris")
STEP: Any = SimpleNamespace(limits={"within": 1.0}, calls=())


class World(made.StepContext):
    """Stands for tools, observer and hand; the same two brokers at every reading."""

    timeouts, waits = Timeouts(), PluginTimeouts()

    def __init__(self, *views: SiteView) -> None:
        super().__init__()
        self.views, self.observer = views, self
        self.already_delivered: dict[str, dict[str, frozenset[str]]] = {}

    def link_ends(self, *_: Any) -> list[Any]:
        return [self.views]

    between = link_ends

    def answers(self, of: Any, *_: object) -> list[Any]:
        return [*of]

    def answering(self, site: str) -> list[Any]:
        return [view for view in self.views if view.site == site]

    def at(self, site: str) -> list[Any]:
        return [SimpleNamespace(read=lambda view=view: view) for view in self.views if view.site == site]

    def unapplied_at(self, site: str, *, timeout_s: float) -> int | None:
        return next(view.link.unapplied for view in self.views if view.site == site)


NOTHING = {"outflow": None, "pending": None, "attached": None}


def test_one_of_several_brokers_that_was_not_read_makes_the_figures_of_its_site_unknown() -> None:
    silent = TimedOut("http://paris: no answer")
    shown = link_figures([("london", OWING.link), ("paris", UNREAD.link)])
    assert shown == {"london": {"outflow": 5, "pending": 1, "attached": True}, "paris": NOTHING}
    assert link_figures([("paris", OWING.link), ("paris", UNREAD.link)])["paris"] == NOTHING
    assert link_figures([("paris", OWING.link), ("paris", silent)])["paris"] == {"unknown": "http://paris: no answer"}


@pytest.mark.parametrize(
    ("act", "text", "refused"),
    [
        (procedure.catch_up, "were not read: the continuity plugin has not started", True),
        (proving.settle, "which acknowledgements from london are not applied at paris was not read", False),
        (reinstate.RESIDUE.act, "what paris still holds was not read: the continuity plugin has not started", True),
    ],
)
def test_a_step_that_rests_on_it_waits_and_never_ends_well(act: Any, text: str, refused: bool) -> None:
    world = World(OWING, UNREAD)
    ended: Outcome = act(world, STEP, THERE, world)
    assert text in ended.text
    assert isinstance(ended, Failed) or not refused
    if act is procedure.catch_up:
        assert ({*world.depths}, world.sampled[0]["paris"]["outflow"]) == ({None}, None)
    if act is proving.settle:
        assert {sample["paris"]["pending"] for sample in world.sampled} == {None}


def test_its_residue_is_not_told() -> None:
    paris = {PAIR: broker("paris", flow("orders", to_ship=4)), "orders-2": replace(UNREAD, pair="orders-2")}
    assert ContinuitySnapshot({"london": {}, "paris": paris}).residue("paris") == {}
    assert snapshot(OWING, broker("paris", flow("orders", to_ship=4))).residue("paris")["messages"] == 4


AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


def shipped(view: SiteView, messages: int, acks: int) -> SiteView:
    """The same broker after its bridges have had so many confirmed."""

    def later(value: Flow) -> Flow:
        return replace(
            value,
            mirror_bridge=replace(value.mirror_bridge, acked=messages),
            acks_bridge=replace(value.acks_bridge, acked=acks),
        )

    return replace(view, flows=tuple(later(item) for item in view.flows))


def test_the_four_figures_of_the_plugins_own_design() -> None:
    london = broker("london", flow("orders", to_ship=30, acks=10, unapplied=5))
    link = shipped(london, 60, 40).link.to_snapshot(london, 2.0)
    content = document(link)
    assert (content["loss_risk"], content["duplicate_risk"], content["recovery_point_s"]) == (30, 10, None)
    assert (content["rate"], content["recovery_time_s"]) == (50.0, 0.9)
    assert "30 message(s) to ship, 10 acknowledgement(s)" in link.lines[0]


@pytest.mark.parametrize("before", [None, broker("london", flow("orders", to_ship=30), start="1")])
def test_without_two_looks_at_one_start_there_is_no_rate(before: SiteView | None) -> None:
    content = document(broker("london", flow("orders", to_ship=30)).link.to_snapshot(before, 2.0))
    assert (content["rate"], content["recovery_time_s"], content["recovery_point_s"]) == (None, None, None)


def test_the_history_keeps_each_outflow_by_itself() -> None:
    london = broker("london", flow("orders", to_ship=3, acks=2), depths={"orders": 9})
    paris = broker("paris", flow("orders", unapplied=4, staged=11), depths={"orders": 1})
    by_name = {row.kind: row for row in snapshot(london, paris).rows(AT) if row.site == "london"}
    assert (by_name["staged"].name, by_name["staged"].depth, by_name["staged"].start) == ("orders", 12, london.start)
    assert (by_name["mirror"].name, by_name["mirror"].depth) == ("orders", 3)
    assert (by_name["acks"].name, by_name["acks"].depth, by_name["acks"].pending) == ("orders", 2, 4)
    assert by_name["mirror"].link is by_name["acks"].link is True
    assert (by_name["queue"].name, by_name["queue"].depth) == ("orders", 9)


def test_what_the_peer_did_not_say_has_no_figure() -> None:
    cut = flow("orders", out_mirror=queue("orders.out.mirror", 3))
    by_name = {row.kind: row for row in broker("london", cut).link.rows(None, AT)}
    assert by_name["acks"].pending is None
    assert by_name["mirror"].link is False


def test_a_closed_site_says_itself_what_it_takes_with_it() -> None:
    london = broker("london", flow("orders", to_ship=3, acks=2), flow("bulk", to_ship=1), active=False)
    paris = broker("paris", flow("orders", unapplied=4), flow("bulk"))
    known, alone = london.link.stake(paris), london.link.stake(None)
    assert (known.lost, known.duplicates, known.queues) == (4, 6, {"orders": (3, 6), "bulk": (1, 0)})
    assert (alone.lost, alone.duplicates) == (4, None)
    assert replace(london, service=None).link.stake(paris).lost is None


def test_a_plugin_that_has_not_started_is_shown_with_no_figure_at_all() -> None:
    silent = replace(broker("london"), service=None, flows=())
    link = silent.link.to_snapshot(silent, 2.0)
    content = document(link)
    figures = ("outflow", "pending_acks", "rate", "drain_s", "loss_risk", "duplicate_risk", "recovery_point_s")
    assert [content[name] for name in (*figures, "recovery_time_s")] == [None] * 8
    assert link.lines == ("the continuity plugin has not started: its outflow was not read",)
    assert (silent.link.residue, silent.link.stake(None).lost) == (None, None)


def test_a_closed_site_tells_of_lost_acknowledgements_by_what_lies_at_the_other() -> None:
    """And of messages without a copy, of which a copy that was left over makes up for one in each count."""
    london = broker("london", flow("orders", to_ship=3), depths={"orders": 10}, active=False)
    paris, whole = broker("paris", flow("orders", staged=20)), {"uncopied": {"orders": frozenset()}}
    stakes = [
        replace(london, **more).link.stake(paris)
        for more in (whole, {"uncopied": {"orders": frozenset("ab")}}, {}, {**whole, "without_id": {"orders": 1}})
    ]
    assert [(stake.lost, stake.duplicates) for stake in stakes] == [(3, 13), (5, 15), (10, 20), (10, 20)]


def site(name: str, *flows: Flow) -> SiteView:
    view = broker(name, *flows, active=False)
    theirs = [queue for item in flows for queue in (item.out_mirror, item.out_acks, item.staging, item.in_acks)]
    return replace(view, queues=(*view.queues, *theirs))


def test_what_a_broker_counts_below_zero_is_not_known_wherever_a_sum_is_made_of_it() -> None:
    closed, paris = (site(*case) for case in (
        ("london", flow("orders", to_ship=5), flow("audit", to_ship=-5)), ("paris", flow("orders"), flow("audit"))
    ))  # fmt: skip
    linked, stake = closed.link.to_snapshot(None, 1.0), closed.link.stake(paris)
    assert (closed.link.to_ship, linked.outflow, stake.lost, stake.queues, closed.link.residue) == (None,) * 5
    assert "an unknown number of message(s) to ship, 0 acknowledgement(s) to ship" in linked.lines[0]
    rows = [(row.kind, row.name, row.depth) for row in closed.link.rows(paris, AT) if row.kind == "mirror"]
    assert rows == [("mirror", "orders", 5)]


def test_acknowledgements_that_are_miscounted_are_not_known() -> None:
    orders, audit = flow("orders"), flow("audit")
    paris = site("paris", replace(orders, in_acks=replace(orders.in_acks, depth=-1)), audit)
    london = site("london", orders, audit)
    assert (paris.link.unapplied, london.link.stake(paris).duplicates) == (None, None)
    pending = {row.name: row.pending for row in london.link.rows(paris, AT) if row.kind == "acks"}
    assert pending == {"orders": None, "audit": 0}


PAPERS = plugin.FilterRequests("london", prefix="continuity.cmd")


@pytest.mark.parametrize("text", ["", '{"a": "it\'s"}', "''", "'", 'ü\n"x"', "dr_ctl_says = 'x'"])
def test_what_is_written_is_read_back(text: str) -> None:
    created = items(PAPERS.create("dr-ctl.lock.paris.3", text, kind="dr-ctl.lock.paris"), "arguments")
    assert PAPERS.text(Fields("a queue", {"Filter": created[3]})) == text
    updated = items(PAPERS.update("q", text, kind="k"), "arguments")
    assert PAPERS.text(Fields("a queue", {"Filter": updated[2]})) == text


def test_a_filter_of_anybody_else_is_no_text() -> None:
    assert PAPERS.text(Fields("a queue", {"Filter": "colour = 'red'"})) == ""
    assert PAPERS.text(Fields("a queue", {"Filter": None})) == ""


@pytest.mark.parametrize("asked", [PAPERS.create("dr-ctl.a", "x"), PAPERS.keep("dr-ctl.a")])
def test_no_durable_queue_of_ours_becomes_a_flow(asked: Request) -> None:
    """The plugin makes one of each durable queue unless its address contains its own command prefix."""
    address, _, _, _, durable, *_ = items(asked, "arguments")
    assert durable is True
    assert "continuity.cmd" in str(address)


def test_the_queue_of_the_probe_is_not_durable() -> None:
    asked = PAPERS.probe("dr-ctl.probe.paris")
    assert items(asked, "arguments")[2:5:2] == ["dr-ctl.probe.paris", False]
    assert asked["operation"] == CREATE_FILTERED
