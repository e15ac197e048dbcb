"""What a look makes of the plugin's answers and shows of them; what was not read is told as such and is never zero."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from dr_ctl.core.errors import TimedOut
from dr_ctl.core.patience import Patience
from dr_ctl.engine.outcome import Outcome, Refused
from dr_ctl.jolokia.client import Answer, Ask, Listing, Read, Search
from dr_ctl.jolokia.errors import BadValue, PolicyRefused
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.artemis.document_queue import CREATE_FILTERED, created
from dr_ctl.topologies.common.acts import proving
from dr_ctl.topologies.common.evidence import evidence
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.continuity.acts import catch_up, residue
from dr_ctl.topologies.continuity.document_queue import InFilter
from dr_ctl.topologies.continuity.look import look, serving
from dr_ctl.topologies.continuity.patience import PluginPatience
from dr_ctl.topologies.continuity.view import ContinuitySeen, Flow, SiteView
from tests.topologies.continuity.views import PAIR, broker, flow, queue, seen

SERVER = 'org.apache.activemq.artemis:broker="london"'
SERVICE = f'{SERVER},component=continuity,name="continuity.service"'
ZERO = {
    "MessageCount": 0, "DeliveringCount": 0, "ScheduledCount": 0, "ConsumerCount": 1, "Paused": False,
    "MessagesAdded": 0, "MessagesAcknowledged": 0,
}  # fmt: skip
WHOLE = ZERO | {
    "Name": "", "MessagesExpired": 0, "MessagesKilled": 0, "Durable": True, "Temporary": False, "RingSize": -1,
    "LastValue": False, "DeadLetterAddress": "DLQ", "ExpiryAddress": "ExpiryQueue", "Filter": None,
}  # fmt: skip
ENDS = {"OutflowMirror": "out.mirror", "OutflowAcks": "out.acks", "InflowMirror": "in.mirror", "InflowAcks": "in.acks"}


class Console:
    """Answers the requests of a look by their kind, as the brokers do."""

    url = "http://london"

    def __init__(self, *, moved: bool = True, plugin: bool = True) -> None:
        self.moved, self.plugin = moved, plugin
        self.subject = WHOLE | {"Name": "orders"}
        self.held: list[Any] = []

    def look(self, requests: list[Any], **_: Any) -> list[Answer]:
        return [self._answer(each) for each in requests]

    def _answer(self, request: Any) -> Answer:
        if isinstance(request, Search):
            return Answer(None, [SERVICE] if self.plugin else [])
        if isinstance(request, Ask):
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
        if bean.endswith('queue="*.out.mirror",*'):
            return {self._queue("orders.out.mirror"): {"FirstMessageAge": None}}
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
        told = {"Started": True, "MessagesPendingAcknowledgement": 7, "MessagesAcknowledged": 5}
        return {f'{SERVER},{key}="{name}"': {"Name": name, **told} for name in (*names, "continuity.cmd.out.bridge")}

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
    told: Any = console
    return look(told, pair="orders-1", site="london", config=Config(("clients",), None, None), broker="london")


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
    assert serving(console, "london", timeout_s=1.0) == (False, ("clients",))


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


LONDON = broker("london", flow("orders", to_ship=3, acks=2, unapplied=1))
UNREAD = replace(broker("paris"), service=None, flows=(), commands=None)
MOVE: Any = SimpleNamespace(source="london", target="paris")
STEP: Any = SimpleNamespace(limits={"within": 1.0}, calls=())


class World:
    """Stands for tools, observer and hand; the same two brokers at every look, on a clock that only waiting moves."""

    patience, waits = Patience(), PluginPatience()

    def __init__(self, *views: SiteView) -> None:
        self.views = views
        self.observer = self
        self.now_s = 0.0
        self.depths: list[int | None] = []
        self.sampled: list[Any] = []
        self.had: dict[str, dict[str, frozenset[str]]] = {}

    def ways(self, move: Any) -> list[Any]:
        return [self.views]

    def look(self, ways: Any) -> list[Any]:
        return [self.views]

    def at(self, site: str) -> list[Any]:
        return [SimpleNamespace(look=lambda view=view: view) for view in self.views if view.site == site]

    def unapplied_at(self, site: str, *, timeout_s: float) -> int | None:
        return next(view.link.unapplied for view in self.views if view.site == site)

    def waiting(self, about: str, depth: int | None, why_not_moving: str | None) -> None:
        self.depths.append(depth)

    def sample(self, told: Any) -> None:
        self.sampled.append(told)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s


NOTHING = {"outflow": None, "pending": None, "attached": None}


def test_one_of_several_brokers_that_was_not_read_makes_the_figures_of_its_site_unknown() -> None:
    silent = TimedOut("http://paris: no answer")
    told = evidence([("london", LONDON.link), ("paris", UNREAD.link)])
    assert told == {"london": {"outflow": 5, "pending": 1, "attached": True}, "paris": NOTHING}
    assert evidence([("paris", LONDON.link), ("paris", UNREAD.link)])["paris"] == NOTHING
    assert evidence([("paris", LONDON.link), ("paris", silent)])["paris"] == {"unknown": "http://paris: no answer"}


@pytest.mark.parametrize(
    ("act", "text", "refused"),
    [
        (catch_up.act, "was not read: the continuity plugin has not started", True),
        (proving.settle, "which acknowledgements from london are not applied at paris was not read", False),
        (residue.act, "what paris still holds was not read: the continuity plugin has not started", True),
    ],
)
def test_a_step_that_rests_on_it_waits_and_never_ends_well(act: Any, text: str, refused: bool) -> None:
    world = World(LONDON, UNREAD)
    ended: Outcome = act(world, STEP, MOVE, world)
    assert text in ended.text
    assert isinstance(ended, Refused) or not refused
    if act is catch_up.act:
        assert ({*world.depths}, world.sampled[0]["paris"]["outflow"]) == ({None}, None)
    if act is proving.settle:
        assert {each["paris"]["pending"] for each in world.sampled} == {None}


def test_neither_its_residue_nor_its_link_is_told() -> None:
    paris = {PAIR: broker("paris", flow("orders", to_ship=4)), "orders-2": replace(UNREAD, pair="orders-2")}
    assert ContinuitySeen({"london": {}, "paris": paris}).residue("paris") == {}
    assert seen(LONDON, broker("paris", flow("orders", to_ship=4))).residue("paris")["messages"] == 4
    link = UNREAD.link.linked(None, 1.0)
    assert (link.started, link.attached, link.outflow) == (None, None, None)


AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


def shipped(view: SiteView, messages: int, acks: int) -> SiteView:
    """The same broker after its bridges have had so many confirmed."""

    def later(each: Flow) -> Flow:
        return replace(
            each,
            mirror_bridge=replace(each.mirror_bridge, acked=messages),
            acks_bridge=replace(each.acks_bridge, acked=acks),
        )

    return replace(view, flows=tuple(later(each) for each in view.flows))


def test_the_four_figures_of_the_plugins_own_design() -> None:
    london = broker("london", flow("orders", to_ship=30, acks=10, unapplied=5, oldest_ms=1500))
    link = shipped(london, 60, 40).link.linked(london, 2.0)
    told = link.as_json()
    assert (told["loss_risk"], told["duplicate_risk"], told["recovery_point_s"]) == (30, 10, 1.5)
    assert (told["rate"], told["recovery_time_s"]) == (50.0, 0.9)
    assert "30 message(s) to ship, the oldest 1.50 s old, 10 acknowledgement(s)" in link.lines[0]


@pytest.mark.parametrize("before", [None, broker("london", flow("orders", to_ship=30), start="1")])
def test_without_two_looks_at_one_start_there_is_no_rate(before: SiteView | None) -> None:
    told = broker("london", flow("orders", to_ship=30)).link.linked(before, 2.0).as_json()
    assert (told["rate"], told["recovery_time_s"], told["recovery_point_s"]) == (None, None, None)


def test_the_history_keeps_each_outflow_by_itself() -> None:
    london = broker("london", flow("orders", to_ship=3, acks=2, oldest_ms=70), depths={"orders": 9})
    paris = broker("paris", flow("orders", unapplied=4, staged=11), depths={"orders": 1})
    told = {row.kind: row for row in seen(london, paris).rows(AT) if row.site == "london"}
    assert (told["staged"].name, told["staged"].depth, told["staged"].start) == ("orders", 12, london.start)
    assert (told["mirror"].name, told["mirror"].depth, told["mirror"].oldest_ms) == ("orders", 3, 70)
    assert (told["acks"].name, told["acks"].depth, told["acks"].pending) == ("orders", 2, 4)
    assert told["mirror"].link is told["acks"].link is True
    assert (told["queue"].name, told["queue"].depth) == ("orders", 9)


def test_what_the_peer_did_not_say_has_no_figure() -> None:
    cut = flow("orders", out_mirror=queue("orders.out.mirror", 3))
    told = {row.kind: row for row in broker("london", cut).link.rows(None, AT)}
    assert told["acks"].pending is None
    assert told["mirror"].link is False


def test_a_closed_site_says_itself_what_it_takes_with_it() -> None:
    london = broker("london", flow("orders", to_ship=3, acks=2), flow("bulk", to_ship=1), active=False)
    paris = broker("paris", flow("orders", unapplied=4), flow("bulk"))
    known, alone = london.link.stake(paris), london.link.stake(None)
    assert (known.lost, known.duplicates, known.queues) == (4, 6, {"orders": (3, 6), "bulk": (1, 0)})
    assert (alone.lost, alone.duplicates) == (4, None)
    assert replace(london, service=None).link.stake(paris).lost is None


def test_a_plugin_that_has_not_started_is_shown_with_no_figure_at_all() -> None:
    silent = replace(broker("london"), service=None, flows=())
    link = silent.link.linked(silent, 2.0)
    told = link.as_json()
    figures = ("outflow", "pending_acks", "rate", "drain_s", "loss_risk", "duplicate_risk", "recovery_point_s")
    assert [told[name] for name in (*figures, "recovery_time_s")] == [None] * 8
    assert link.lines == ("the continuity plugin has not started: what its bridges hold was not read",)
    assert (silent.link.residue, silent.link.stake(None).lost) == (None, None)


def test_a_closed_site_tells_of_lost_acknowledgements_by_what_lies_at_the_other() -> None:
    london = broker("london", flow("orders", to_ship=3), depths={"orders": 10}, active=False)
    paris = broker("paris", flow("orders", staged=20))
    assert london.link.stake(paris).duplicates == 13


def site(name: str, *flows: Flow) -> SiteView:
    told = broker(name, *flows, active=False)
    theirs = [queue for each in flows for queue in (each.out_mirror, each.out_acks, each.in_mirror, each.in_acks)]
    return replace(told, queues=(*told.queues, *theirs))


def test_what_a_broker_counts_below_zero_is_not_known_wherever_a_sum_is_made_of_it() -> None:
    closed, paris = (site(*told) for told in (
        ("london", flow("orders", to_ship=5), flow("audit", to_ship=-5)), ("paris", flow("orders"), flow("audit"))
    ))  # fmt: skip
    linked, stake = closed.link.linked(None, 1.0), closed.link.stake(paris)
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


PAPERS = InFilter("continuity.cmd")


@pytest.mark.parametrize("text", ["", '{"a": "it\'s"}', "''", "'", 'ü\n"x"', "dr_ctl_says = 'x'"])
def test_what_is_written_is_read_back(text: str) -> None:
    _, arguments = PAPERS.create("dr-ctl.lock.paris.3", text, kind="dr-ctl.lock.paris")
    assert PAPERS.text(Fields("a queue", {"Filter": arguments[3]})) == text
    assert PAPERS.text(Fields("a queue", {"Filter": PAPERS.update("q", text, kind="k")[1][2]})) == text


def test_a_filter_of_anybody_else_is_no_text() -> None:
    assert PAPERS.text(Fields("a queue", {"Filter": "colour = 'red'"})) == ""
    assert PAPERS.text(Fields("a queue", {"Filter": None})) == ""


@pytest.mark.parametrize("operation", [PAPERS.create("dr-ctl.a", "x"), PAPERS.keep("dr-ctl.a")])
def test_no_durable_queue_of_ours_becomes_a_flow(operation: tuple[str, tuple[object, ...]]) -> None:
    """The plugin makes one of each durable queue unless its address contains its own command prefix."""
    address, _, _, _, durable, *_ = operation[1]
    assert durable is True
    assert "continuity.cmd" in str(address)


def test_the_queue_of_the_probe_is_not_durable() -> None:
    operation, arguments = PAPERS.probe("dr-ctl.probe.paris")
    assert arguments[4] is False
    assert created(operation, arguments) == "dr-ctl.probe.paris"
    assert operation == CREATE_FILTERED
