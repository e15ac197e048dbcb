"""What follows from one reading of a mirrored pair, what speaks against each move of it, plans, waits, gate and
parity."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_ctl.core.document import document, read
from dr_ctl.core.errors import LoginRefused, Sick, TimedOut, Unreachable
from dr_ctl.core.model import ExitCode, Finding, Role, Severity, brief
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine import runbook
from dr_ctl.engine.lease import LockDocument
from dr_ctl.engine.plan import Call, PlannedStep, Spec
from dr_ctl.engine.ports import Done, Failed, Move, Outcome
from dr_ctl.engine.runbook import CUT_OFF, RunbookStep
from dr_ctl.jolokia.client import Reader
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.broker import Coordinator, Group
from dr_ctl.topologies.common import rules
from dr_ctl.topologies.common.checks import Case
from dr_ctl.topologies.common.gate import PairReading, why_clients_are_not_out
from dr_ctl.topologies.common.recipe import Recipe
from dr_ctl.topologies.common.rules import Rules, not_accepted
from dr_ctl.topologies.common.session import FOR_GATE, ReadScope, change
from dr_ctl.topologies.common.snapshot import Silent
from dr_ctl.topologies.common.view import Acceptor, Config, Connection, Consumer
from dr_ctl.topologies.common.waiting import MAX_REPAIRS, Wait
from dr_ctl.topologies.mirror import procedure
from dr_ctl.topologies.mirror.checks import CHECKS
from dr_ctl.topologies.mirror.procedure import EVENTS, STALE_COUNT, WAITS, LinkDirection
from dr_ctl.topologies.mirror.reading import Observer
from dr_ctl.topologies.mirror.tools import MirrorGate, MirrorTimeouts
from dr_ctl.topologies.mirror.view import (
    BrokerConnection,
    BrokerView,
    MirrorSnapshot,
    differences,
    under_way,
    unexplained,
)
from tests.topologies import made
from tests.topologies.mirror import views
from tests.topologies.mirror.pair import broker_of
from tests.topologies.mirror.views import (
    ADMIN,
    CLIENTS,
    MIRROR,
    PAIR,
    at_both,
    broker,
    connection,
    consumer,
    link_connection,
    listener,
    listeners,
    outflow,
    queue,
    snapshot,
    with_queue,
)  # fmt: skip

REFUSED = Unreachable("london: connection refused", refused=True)
GONE = Silent(PAIR, "london", REFUSED, ports_refuse=True)
UNSEEN = Silent(PAIR, "london", Unreachable("?", refused=False))
OPEN, PARIS = at_both("orders.in", "orders.audit", depth=3)
LONDON = replace(OPEN, acceptors=listeners("london", serving=False))
UNSTARTED = (replace(LONDON.links[0], started=False, connected=False),)
UNLOCKED = Coordinator("site-lock", "the-service", "Unlocked")
CLIENTS_LISTENER, LINK_LISTENER = PARIS.acceptors
SHUT = replace(PARIS, acceptors=(CLIENTS_LISTENER, replace(LINK_LISTENER, started=False)))
OWED = FENCE, QUARANTINE = ("dr-ctl.debt.paris.fence.london", "dr-ctl.debt.paris.quarantine.london")
# As a failover leaves it: it serves, the listener of the link is closed, both debts stand there.
SERVING = replace(
    PARIS,
    acceptors=(listeners("paris", serving=True)[0], SHUT.acceptors[1]),
    links=(replace(PARIS.links[0], connected=False),),
    documents=dict.fromkeys(OWED, ""),
)
MENDED = replace(SERVING, acceptors=listeners("paris", serving=True), links=PARIS.links, documents={})


def recipe(queues: Queues) -> Recipe[BrokerView]:
    return procedure.TOPOLOGY.recipe(queues, Drain(), Timeouts())


RECIPE = recipe(Queues())


def move(before: MirrorSnapshot, operation: str) -> Move:
    target, source = ("paris", "london") if operation in ("swapover", "failover") else ("london", "paris")
    return Move(Spec(operation, target), source, RECIPE.baseline(before))


def against(operation: str, look: MirrorSnapshot) -> dict[str, str]:
    return {finding.id: finding.severity.value for finding in RECIPE.why_not(look, move(look, operation))}


@pytest.mark.parametrize(
    ("paris", "told"),
    [
        (replace(PARIS, links=(replace(PARIS.links[0], connected=False),)), {}),
        # What would make the opened site useless or unsafe refuses it.
        (replace(PARIS, config=Config(("amqp",), ("mirror",), None)), {"DR-DOOR-001": "error"}),
        (replace(PARIS, config=Config(("clients",), None, None),
                 acceptors=(*PARIS.acceptors, listener("amqp", 5672, site="paris"))), {"DR-DOOR-003": "error"}),
        # What can wait until clients are served again, or what only the way back needs, is a warning.
        (replace(PARIS, prepared=("AQID",)), {"DR-TX-001": "warning"}),
        (replace(PARIS, coordinators=(UNLOCKED,)), {"DR-ALIVE-001": "error"}),  # somebody holds the lock
        (replace(PARIS, coordinators=(replace(UNLOCKED, status="Stopped"),)), {"DR-DOOR-008": "info"}),
        (replace(PARIS, queues=tuple(PARIS.business.values())), {"DR-LINK-002": "warning"}),
        (SHUT, {"DR-DOOR-004": "warning"}),
        (replace(PARIS, acceptors=(*PARIS.acceptors, listener("amqp", 5672, site="paris")),
                 consumers=(consumer(port=61617),)), {"DR-DOOR-011": "warning"}),
        (replace(PARIS, config=Config(("clients", "mirror"), None, None)), {"DR-DOOR-003": "warning"}),
        (replace(PARIS, links=()), {"DR-LINK-009": "warning"}),
        (replace(PARIS, config=Config(("clients",), ("mirror",), "mistyped")), {"DR-LINK-001": "warning"}),
        (replace(PARIS, links=UNSTARTED), {"DR-LINK-003": "warning"}),
    ],
)  # fmt: skip
def test_what_speaks_against_a_failover(paris: BrokerView, told: dict[str, str]) -> None:
    contradictions = against("failover", snapshot(GONE, paris))
    assert contradictions["DR-SITE-001"] == "warning"
    assert contradictions.items() >= told.items()
    assert [item for item in contradictions.values() if item == "error"] == [
        item for item in told.values() if item == "error"
    ]
    assert told or len(contradictions) == 1
    look = snapshot(GONE, paris)
    assert all(
        finding.remedy for finding in RECIPE.why_not(look, move(look, "failover")) if finding.severity is Severity.ERROR
    )


@pytest.mark.parametrize(
    ("operation", "look", "told"),
    [
        # A closed site is not asked what it says of itself.
        ("failover", snapshot(replace(LONDON, prepared=("AQID",), links=()), PARIS), {}),
        ("failback", snapshot(replace(LONDON, links=UNSTARTED), SERVING), {}),  # the return itself puts it right
        ("failback", snapshot(UNSEEN, SERVING), {"DR-SITE-001": "error"}),
        ("failback", snapshot(LONDON, replace(UNSEEN, site="paris")), {"DR-SITE-001": "error"}),
        ("failback", snapshot(replace(LONDON, prepared=("AQID",)), SERVING), {"DR-TX-001": "error"}),
        ("failback", snapshot(LONDON, replace(SERVING, links=())), {"DR-LINK-009": "error"}),
        ("failback", snapshot(OPEN, SERVING), {"DR-RETURN-001": "warning"}),  # it is closed before anything else
        # Once nothing keeps it out any more it is a swapover, and the return explains no difference.
        ("failback", snapshot(LONDON, with_queue(MENDED, queue("orders.in", depth=5))), {"DR-PARITY-001": "error"}),
        ("reinstate", snapshot(LONDON, with_queue(MENDED, queue("orders.in", depth=5))), {}),
    ],
)
def test_what_else_is_said(operation: str, look: MirrorSnapshot, told: dict[str, str]) -> None:
    assert against(operation, look) == told


@pytest.mark.parametrize(
    ("look", "rejoined"),
    [
        (snapshot(LONDON, MENDED), True),
        (snapshot(LONDON, SERVING), False),
        (snapshot(LONDON, replace(MENDED, documents={FENCE: ""})), False),
        (snapshot(LONDON, replace(MENDED, acceptors=SERVING.acceptors)), False),
        (snapshot(replace(LONDON, documents={"dr-ctl.debt.london.fence.paris": ""}), MENDED), False),
        (snapshot(replace(LONDON, documents={"dr-ctl.lock.london.3": ""}), MENDED), True),
        (snapshot(OPEN, MENDED), False),
        (snapshot(replace(LONDON, links=(replace(LONDON.links[0], connected=False),)), MENDED), False),
        (snapshot(LONDON, replace(MENDED, pending_acks=2)), False),
    ],
    ids=["all is well", "both owed", "a fence", "the link's listener is closed", "owed at home", "only a lock", "open",
         "its link ships nothing", "not all of it is applied"],
)  # fmt: skip
def test_it_is_taken_in_where_nothing_is_owed_kept_out_or_under_way(look: MirrorSnapshot, rejoined: bool) -> None:
    assert (RECIPE.holds_already(look, move(look, "reinstate")) is not None) is rejoined


def otherwise(view: BrokerView, *paused: str, **more: Any) -> BrokerView:
    for name in paused:
        view = with_queue(view, queue(name, 3, site=view.site, paused=True))
    return replace(view, **more)


BOTH, LOST, BACK = snapshot(OPEN, PARIS), snapshot(GONE, PARIS), snapshot(LONDON, SERVING)
TWO_LISTENERS = otherwise(OPEN, acceptors=(*OPEN.acceptors, listener("mqtt", 1883, started=False)),
                      config=Config(("clients", "mqtt"), ("mirror",), None))  # fmt: skip
CUT = snapshot(otherwise(LONDON, "orders.in", "orders.audit"), PARIS)  # by the run itself, behind its fence
HELD = snapshot(LONDON, otherwise(SERVING, "orders.in"))
OPENED = snapshot(otherwise(LONDON, "orders.in"), otherwise(PARIS, acceptors=listeners("paris", serving=True)))
LOCK = LockDocument(7, "a run", paused={"a run": ("orders.in",)}).to_text()
NARROW = Queues(include=("orders.#", "brief"), exclude=("orders.audit",))
ALL_IN, AUDIT = "; ".join(f"paris pause {name}" for name in ("orders.in", "orders.audit")), "paris resume orders.audit"
IN, STRUCK = "paris resume orders.in", f"paris strike {FENCE}; paris strike {QUARANTINE}"
SHUT_AGAIN, OWED = "paris close mirror", f"paris write {FENCE}; paris write {QUARANTINE}"


@pytest.mark.parametrize(
    ("operation", "verb", "look", "before", "calls", "inverse"),
    [
        # What somebody paused stays paused, through the move and its undo; so does what the settings leave out.
        ("swapover", "quiesce", snapshot(otherwise(OPEN, "orders.in"), PARIS), None,
         "london pause orders.audit", "london resume orders.audit"),
        ("swapover", "drain", snapshot(otherwise(OPEN, "orders.in"), PARIS), None, "london resume orders.audit", None),
        ("swapover", "quiesce", BOTH, NARROW, "london pause orders.in", "london resume orders.in"),
        ("swapover", "quiesce", BOTH, Queues(include=("nothing",)), "", ""),
        ("swapover", "fence", snapshot(TWO_LISTENERS, PARIS), None, "london close clients", "london open clients"),
        ("swapover", "catch-up", snapshot(OPEN, otherwise(PARIS, links=(replace(PARIS.links[0], started=False),))),
         None, "", "london link-up paris"),
        # The inverse of a resumed run is from before it, and not from what it has done.
        ("swapover", "fence", CUT, BOTH, "", "london open clients"),
        ("swapover", "quiesce", CUT, BOTH, "", "london resume orders.in; london resume orders.audit"),
        ("swapover", "drain", CUT, BOTH, "london resume orders.in; london resume orders.audit", None),
        ("swapover", "activate", OPENED, BOTH, "london resume orders.in", "paris close clients"),
        ("failover", "activate", OPENED, BOTH, "", "paris close clients"),
        # At the target a run's pauses are lifted, and nobody else's.
        ("swapover", "activate", snapshot(OPEN, otherwise(PARIS, "orders.in")), None, "paris open clients", None),
        ("swapover", "activate", snapshot(OPEN, otherwise(PARIS, "orders.in", documents={"dr-ctl.lock.paris.7": LOCK})),
         None, "paris open clients; paris resume orders.in", None),
        # A lost site that is closed is not fenced; what stands is neither written again nor struck by the undo.
        ("failover", "fence", snapshot(GONE, otherwise(SHUT, documents={FENCE: ""})), LOST,
         "", f"paris strike {FENCE}"),
        ("failover", "quarantine", snapshot(GONE, otherwise(SHUT, documents={QUARANTINE: ""})), LOST,
         "", f"paris open mirror; paris strike {QUARANTINE}"),
        # A return pauses every queue, whatever the settings narrow, lifts its own pauses and no others.
        ("failback", "reinstate", BACK, NARROW,
         f"{ALL_IN}; paris open mirror; {IN}; {AUDIT}; {STRUCK}", f"{SHUT_AGAIN}; {IN}; {AUDIT}; {OWED}"),
        ("failback", "reinstate", HELD, None,
         f"paris pause orders.audit; paris open mirror; {AUDIT}; {STRUCK}", f"{SHUT_AGAIN}; {AUDIT}; {OWED}"),
        ("failback", "reinstate", HELD, BACK, f"paris pause orders.audit; paris open mirror; {AUDIT}; {IN}; {STRUCK}",
         f"{SHUT_AGAIN}; {AUDIT}; {IN}; {OWED}"),
        ("failback", "reinstate", snapshot(otherwise(LONDON, links=UNSTARTED), SERVING), None,
         f"{ALL_IN}; paris open mirror; london link-up paris; {IN}; {AUDIT}; {STRUCK}", None),
        # One that came back open is closed, and never opened again beside the other.
        ("failback", "residue", snapshot(OPEN, SERVING), None, "london close clients", ""),
        ("failback", "activate", snapshot(OPEN, SERVING), None, "london open clients", "london close clients"),
    ],
)  # fmt: skip
def test_what_a_step_does_and_undoes(
    operation: str,
    verb: str,
    look: MirrorSnapshot,
    before: MirrorSnapshot | Queues | None,
    calls: str,
    inverse: str | None,
) -> None:
    how, began = (recipe(before), look) if isinstance(before, Queues) else (RECIPE, before or look)
    [line] = [step for step in runbook.load(operation, runbook.shipped()).steps if step.verb == verb]
    draft = how.draft(line, look, move(began, operation))
    assert told([call for call in draft.calls if call.when is None]) == calls
    assert inverse is None or told(draft.inverse) == inverse
    assert all(call.when for call in draft.inverse)
    assert verb != "reinstate" or draft.limits == {"stall": 20.0}, "what moves is not timed out"


def test_a_lost_site_that_a_hook_has_cut_off_is_not_owed_a_fence() -> None:
    look, line = snapshot(GONE, SHUT), RunbookStep("fence", "lost", 1, words={CUT_OFF: True})
    draft = RECIPE.draft(line, look, move(look, "failover"))
    assert (draft.cut_off, draft.calls) == (True, ()), "what shows that it lives keeps nothing closed then"


def told(calls: Sequence[Call]) -> str:
    return "; ".join(f"{call.site} {call.goal.value} {call.resource}" for call in calls)


def test_what_is_not_replicated_is_named() -> None:
    asked, odd = move(BOTH, "swapover"), with_queue(with_queue(OPEN, queue("brief", durable=False)), queue("logs", 2))
    items = {*recipe(NARROW).not_replicated(snapshot(odd, PARIS), asked)}
    left = "queues left out of quiesce and parity by the settings (they move too): "
    usual = {*recipe(NARROW).not_replicated(snapshot(PARIS, PARIS), asked)}
    assert items - usual == {"non-durable queues: brief", f"{left}logs; orders.audit"}


@settings(deadline=None)
@given(name=st.text(min_size=1).filter(lambda name: queue(name).business))
def test_any_queue_name_comes_unharmed_through_the_calls(name: str) -> None:
    draft = RECIPE.draft(
        RunbookStep("quiesce", "both", 1), snapshot(*at_both(name)), Move(Spec("swapover", "paris"), "london", {})
    )
    [call] = [call for call in draft.calls if call.when is None]
    names = beans.parts(change(call.request).bean)
    assert (names["queue"], names["address"], call.summary.endswith(f" {name} at london")) == (name, name, True)
    assert read(Call, document(call)) == call


def flow(depth: int = 0, added: int = 0, *, attached: bool = True, pending: int = 0, nodes: Any = ()) -> BrokerView:
    shipping = outflow("london", depth=depth, added=added, consumers=1 if attached else 0)
    return replace(broker("london", serving=False, pending_acks=pending), queues=(shipping,), nodes=nodes)


class World(made.StepContext):
    """Stands for tools, observer, hand and broker."""

    timeouts, waits = Timeouts(), MirrorTimeouts()
    site, pair, restarts = "london", "a", 0

    def __init__(self, now: Callable[[float], Any] = lambda _: flow()) -> None:
        super().__init__()
        self.observer = self
        self._now = now

    def answers(self, of: Sequence[Any], scope: ReadScope, *_: object) -> list[Any]:
        assert scope is ReadScope.OUTFLOW
        return [self._now(self.now_s) if item is self else flow() for item in of]

    def notice(self, text: str) -> None:
        assert "restarting it" in text
        assert "although the peer answers" in text

    def last_view(self) -> BrokerView:
        return flow()

    def change(self, calls: Any, context: Any) -> list[Any]:
        self.restarts += 1
        return []


def waited(world: Any, within_s: float) -> Failed | None:
    """London's way to Paris, which has nothing under way."""
    paris: Any = SimpleNamespace(site="paris", pair="a")
    ways = [LinkDirection(world, paris, world, world), LinkDirection(paris, world, world, world)]
    wait: Wait[BrokerView] = Wait(world, ways, world, "events", counts=EVENTS, scope=ReadScope.OUTFLOW)
    return wait.until(0.5, {"within": within_s, "stall": 100.0}, stable_for=1)


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (lambda _: flow(9, 9), "9 event(s) under way; the peer accepts nothing from london for 2 s: its link hangs"),
        (lambda at_s: flow(10, 10 + int(10 * at_s)), "10 event(s) under way; they move too slowly"),
        (lambda at_s: flow(20 - int(5 * at_s), 20), "10 event(s) under way; they move too slowly"),
        (lambda _: flow(0, 10), None),
        (lambda _: flow(10, 10, attached=False), "10 event(s) under way; the link of london is not attached"),
        (lambda _: flow(0, 10, pending=3, nodes="ab"), f"3 event(s) under way; {WAITS} at london (3); {STALE_COUNT}"),
        (
            lambda _: TimedOut("http://london: no answer"),
            "an unknown number of event(s) under way; london does not answer: http://london: no answer",
        ),
    ],
    ids=["nothing shipped", "shipped while more came", "shipped", "empty", "not attached", "not applied", "silent"],
)
def test_what_keeps_it_from_ending_is_said(now: Callable[[float], Any], says: str | None) -> None:
    refused = waited(World(now), 2.0)
    assert (refused and refused.text) == (says and f"not drained after 2.00 s: {says}")


@pytest.mark.parametrize(
    ("now", "restarts"),
    [
        (lambda at_s: flow(10, 10 + int(10 * at_s)), 0),
        (lambda _: flow(10, 10), MAX_REPAIRS),
        (lambda at_s: flow(10 + int(at_s), 10 + int(at_s)), MAX_REPAIRS),
        (lambda _: flow(0, 10, pending=1), 0),
        (lambda _: flow(10, 10, attached=False), MAX_REPAIRS),
    ],
    ids=["ships", "ships nothing", "ships nothing while more comes", "has nothing to ship", "not attached"],
)
def test_what_hangs_is_restarted_and_nothing_else(now: Callable[[float], BrokerView], restarts: int) -> None:
    world = World(now)
    waited(world, 60.0)
    assert world.restarts == restarts


@pytest.mark.parametrize(
    ("now", "limit_s"),
    [(flow(10, 10), MirrorTimeouts().hung_s), (flow(10, 10, attached=False), Timeouts().link_lost_s)],
    ids=["idle", "unattached"],
)
def test_it_is_given_its_time(now: BrokerView, limit_s: float) -> None:
    early, late = World(lambda _: now), World(lambda _: now)
    waited(early, limit_s - 0.6)
    waited(late, limit_s + 1.1)
    assert (early.restarts, late.restarts) == (0, 1)


LockReading = BrokerView | TimedOut


def _message(born: str, number: int) -> dict[str, Any]:
    ids = {"StringProperties": {"x-opt-amq-bkr-id": born}, "LongProperties": {"x-opt-amq-mr-id": number}}
    return {"messageID": str(number), "protocol": "CORE", **ids}


@dataclass
class Scripted:
    """One broker whose looks are given, the last of them again and again; `browsed` are the ids of its messages."""

    site: str
    looks: Sequence[LockReading]
    browsed: Sequence[int] = (1, 2, 3)
    unnamed: int = 0
    waiting: int = 0
    pair: str = PAIR
    taken: int = 0

    def last_view(self) -> BrokerView:
        return closed(self.site)

    def read(self, scope: ReadScope, *, timeout_s: float) -> BrokerView:
        assert scope is FOR_GATE
        result = self.looks[min(self.taken, len(self.looks) - 1)]
        self.taken += 1
        if isinstance(result, TimedOut):
            raise result
        return result

    def reader(self) -> Reader:
        broker = broker_of(self.site)
        rows = [_message("born", number) for number in self.browsed]
        rows += [{**_message("born", 0), "protocol": "unheard of"}] * self.unnamed
        broker.instead["browse"] = {"value": rows, "status": 200}
        for told in broker.queues.values():
            told["ScheduledCount"] = self.waiting
        return broker.reader()


def closed(site: str, *more: Any, depth: int = 3) -> BrokerView:
    return broker(site, queue("orders.in", depth, site=site), *more, serving=False)


def shipping(site: str) -> BrokerView:
    return with_queue(closed(site), outflow(site, depth=4))


HERE, THERE = closed("london"), closed("paris")
NO_ANSWER = TimedOut("paris: no answer within 5 s")


class Gate:
    """A gate to wait at; `outcome` is how the wait ended."""

    def __init__(self, london: Sequence[LockReading], paris: Sequence[LockReading], **more: Any) -> None:
        drain = Drain.model_validate({"poll": f"{1000 * more['poll']:g}ms"})
        self.london = Scripted("london", london)
        told = {key: more[key] for key in ("browsed", "unnamed", "waiting") if key in more}
        self.paris = Scripted("paris", paris, **told)
        self.context = made.StepContext()
        observer = SimpleNamespace(
            brokers={"london": {PAIR: self.london}, "paris": {PAIR: self.paris}},
            queues=Queues(),
            timeouts=Timeouts(),
            ask_all=lambda ask, of: [ask(item) for item in of],
            link_ends=lambda move: [(self.london, self.paris)],
        )
        observer.answers, observer.ask_each = (partial(way, observer) for way in (Observer.answers, Observer.ask_each))
        verifying = MirrorGate(cast("Observer", observer), drain.poll)
        verifying.drain_readings = more.get("begun", {})
        step = PlannedStep(8, "verify", "paris", "", limits={"within": 10.0, "stable": more.get("stable", 3)})
        ask = Spec("swapover", "paris", accept_difference=more.get("accepted", {}))
        self.outcome: Outcome = verifying.verify(step, Move(ask, "london", {}), cast("Any", self.context))
        assert all({*sample} == {"london", "paris"} for sample in self.context.sampled)


STILL = [PairReading(-1.0 + number / 10, HERE, THERE) for number in range(3)]
LESS = with_queue(THERE, queue("orders.in", 3, site="paris", added=2))


@pytest.mark.parametrize(
    ("paris", "more", "taken", "took_s", "samples"),
    [
        # As many good samples as asked for; one sample is a moment, not a window.
        *(([THERE], {"stable": n, "poll": 1.0}, max(n, 2), None, max(n, 2)) for n in (1, 2, 3, 7)),
        # Where only the least window has to pass the last reading is at its end.
        *(([THERE], {"stable": n}, n, 0.05, n) for n in (2, 4)),
        # The first still look before counts for the window and not as a reading of the gate.
        ([THERE], {"stable": 2, "begun": {PAIR: [PairReading(-1.0, HERE, THERE)]}}, 2, 0.01, 2),
        # Looks at which the gate held before count, and one of its own is taken.
        ([THERE], {"begun": {PAIR: STILL}}, 1, None, 3),
        # What came in since then begins the window anew.
        ([THERE], {"stable": 2, "begun": {PAIR: [PairReading(-1.0, HERE, LESS)]}}, 3, 0.06, 2),
        # Looks before count no more once the gate is seen shut.
        *(([bad, THERE], {"poll": 0.1, "begun": {PAIR: STILL}}, 4, None, 3) for bad in (shipping("paris"), NO_ANSWER)),
    ],
)
def test_the_gate_opens_after_a_window_of_good_samples(
    paris: Sequence[LockReading], more: Any, taken: int, took_s: float | None, samples: int
) -> None:
    gate = Gate([HERE], paris, **{"poll": 0.01, **more})
    assert isinstance(gate.outcome, Done)
    assert gate.london.taken == taken
    assert took_s is None or gate.context.now_s == pytest.approx(took_s)
    assert gate.outcome.evidence[PAIR] == {"samples": samples, "ids_compared": 3, "depths": {"orders.in": 3}}


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (shipping("paris"), "4 to ship"),
        (NO_ANSWER, "no answer"),
        (with_queue(THERE, queue("orders.in", 3, site="paris", added=4)), "paris: orders.in is still being added to"),
        (replace(THERE, start="1795259999999"), "restarted"),
    ],
)
def test_one_bad_sample_begins_the_window_anew(bad: LockReading, told: str) -> None:
    gate = Gate([HERE], [THERE, THERE, bad, THERE], poll=1.0)
    assert isinstance(gate.outcome, Done)
    assert gate.paris.taken == 6
    assert any(told in why for why in gate.context.whys if why is not None)


@pytest.mark.parametrize(
    ("looks", "why"),
    [
        ([shipping("paris")], "paris: 4 to ship"),
        ([NO_ANSWER], "no answer within 5 s"),
        ([THERE, shipping("paris")] * 100, "paris: 4 to ship"),
    ],
)
def test_a_gate_that_does_not_open_in_time_says_what_kept_it_shut(looks: list[LockReading], why: str) -> None:
    gate = Gate([HERE], looks, poll=1.0)
    assert isinstance(gate.outcome, Failed)
    assert gate.outcome.code is ExitCode.DRAIN_TIMEOUT
    assert gate.outcome.text.startswith("the conditions of the gate were not met in time")
    assert any(why in item for item in gate.context.whys if item is not None)
    assert gate.context.now_s == pytest.approx(11.0)


def test_a_difference_that_stays_for_two_seconds_is_refused_and_one_that_goes_away_is_waited_for() -> None:
    gate = Gate([HERE], [closed("paris", depth=1)], poll=0.5)
    assert isinstance(gate.outcome, Failed)
    assert gate.outcome.code is ExitCode.REVERTED
    assert [(finding.id, bool(finding.remedy)) for finding in gate.outcome.findings] == [("DR-PARITY-003", True)]
    assert "orders.in: 3 at london, 1 at paris" in gate.outcome.text
    assert 2.0 < gate.context.now_s < 4.5
    # Applied late, not added: the counter stands where the mirror put it.
    late = [with_queue(THERE, queue("orders.in", 3, site="paris", added=1))]
    assert isinstance(Gate([HERE], [*[closed("paris", depth=1)] * 4, *late], poll=0.5).outcome, Done)


def test_other_messages_in_equal_number_are_refused() -> None:
    gate = Gate([HERE], [THERE], poll=1.0, browsed=(1, 2, 9))
    assert isinstance(gate.outcome, Failed)
    assert gate.outcome.text == "orders.in: 1 message(s) only at london, 1 only at paris, although the counts are equal"
    # What a person needs to look at them, and to move all the same.
    [finding] = gate.outcome.findings
    assert finding.id == "DR-PARITY-004"
    assert finding.more == ("orders.in, only at london: born:3", "orders.in, only at paris: born:9")
    assert "--accept-difference orders.in=1 moves all the same" in finding.remedy
    ids = {"orders.in": {"only at london": ["born:3"], "only at paris": ["born:9"]}}
    assert cast("Any", gate.outcome.evidence["ids"]) == ids


def test_where_an_origin_is_not_shown_counts_decide_and_that_is_said() -> None:
    gate = Gate([HERE], [THERE], poll=1.0, browsed=(1, 2), unnamed=1)
    assert isinstance(gate.outcome, Done)
    assert [finding.id for finding in gate.outcome.findings] == ["DR-PARITY-005"]
    assert gate.outcome.findings[0].text.endswith("shows no origin of them: 1 of orders.in")
    # More messages are apart than origins are not shown.
    refused = Gate([HERE], [THERE], poll=1.0, browsed=(1,), unnamed=1)
    assert isinstance(refused.outcome, Failed)
    assert cast("Any", refused.outcome.evidence["ids"])["orders.in"]["only at london"] == ["born:2", "born:3"]


def test_other_messages_are_told_and_pass_where_they_may_differ_or_wait_for_their_time() -> None:
    ring = [with_queue(view, queue("orders.in", 3, site=view.site, ring=True)) for view in (HERE, THERE)]
    gate = Gate(ring[:1], ring[1:], poll=1.0, browsed=(1, 2, 9))
    assert isinstance(gate.outcome, Done)
    [finding] = gate.outcome.findings
    assert finding.id == "DR-PARITY-002"
    assert finding.text.endswith(": orders.in: 1 message(s) only at london, 1 only at paris")
    # A message that a client gave back waits for its time at one site alone, and no listing shows it there.
    assert isinstance(Gate([HERE], [THERE], poll=1.0, browsed=(), waiting=3).outcome, Done)


@pytest.mark.parametrize(("depth", "compared"), [(0, 0), (1000, 3), (1001, 0)])
def test_identities_are_compared_where_a_queue_is_shallow_enough(depth: int, compared: int) -> None:
    gate = Gate([closed("london", depth=depth)], [closed("paris", depth=depth)], poll=1.0)
    assert isinstance(gate.outcome, Done)
    assert cast("Any", gate.outcome.evidence[PAIR])["ids_compared"] == compared


ALL = Queues()


def differing(name: str = "orders.in", source: int = 5, target: int = 3, **kind: Any) -> list[bool]:
    both = broker("london", queue(name, source, **kind)), broker("paris", queue(name, target, site="paris", **kind))
    return [block for block in (True, False) for _ in differences(*both, ALL, block=block)]


@pytest.mark.parametrize(
    ("name", "kind", "blocks"),
    [
        *((name, {}, [True]) for name in ("orders.in", "dlq")),
        # Of these the content may differ: that is told, and does not block.
        *((name, {}, [False]) for name in ("DLQ", "ExpiryQueue")),
        ("dead", {"address": "DLQ"}, [False]),
        *(
            ("odd", kind, [False])
            for kind in ({"ring": True}, {"last_value": True}, {"durable": False}, {"temporary": True})
        ),
        # Queues of broker and tool are not compared.
        *((name, {}, []) for name in ("dr-ctl.probe.paris", "$sys.mqtt.retain.plant.1.state")),
    ],
)
def test_kinds_whose_content_may_differ_do_not_block(name: str, kind: Any, blocks: list[bool]) -> None:
    assert differing(name, **kind) == blocks


def test_a_dead_letter_address_of_either_site_is_excepted() -> None:
    london = broker("london", queue("own.dead", 4), queue("orders.in", dead_letter_address=None))
    paris = broker("paris", queue("orders.in", site="paris", dead_letter_address="own.dead"))
    assert (differences(london, paris, ALL), len(differences(london, paris, ALL, block=False))) == ([], 1)


def pair(depth: int, remote: int, **peer: Any) -> tuple[Any, Any]:
    return broker("london", queue(depth=depth)), broker("paris", queue(depth=remote, site="paris"), **peer)


@pytest.mark.parametrize(
    ("shipping", "back", "pending", "moved", "explained"),
    [
        (0, 0, 0, {}, False),
        (9, 0, 0, {}, False),
        (10, 0, 0, {}, True),
        (0, 10, 0, {}, True),
        (4, 3, 3, {}, True),
        (4, 3, 2, {}, False),
        (0, 0, 0, {"orders.in": 9}, False),
        (0, 0, 0, {"orders.in": 10}, True),
        (0, 0, 0, {"orders.out": 1000}, False),
    ],
)
def test_while_clients_work_a_difference_is_explained_by_what_is_on_its_way_in_either_direction(
    shipping: int, back: int, pending: int, moved: dict[str, int], explained: bool
) -> None:
    london, paris = pair(30, 20, pending_acks=pending)
    london, paris = (
        with_queue(london, outflow("london", depth=shipping)),
        with_queue(paris, outflow("paris", depth=back)),
    )
    assert under_way(london, paris) == shipping + back + pending
    assert (unexplained(london, paris, ALL, moved) == []) is explained


@pytest.mark.parametrize("blind", [0, 1])
def test_an_outflow_that_cannot_be_seen_explains_nothing(blind: int) -> None:
    views = [*pair(5, 4)]
    views[blind] = replace(views[blind], config=replace(views[blind].config, link="mistyped"))
    assert under_way(*views) is None
    assert len(unexplained(*views, ALL, {"orders.in": 1000})) == 1


def test_a_site_without_a_link_has_nothing_under_way_and_an_excepted_kind_is_never_unexplained() -> None:
    unlinked = pair(5, 4, links=())
    assert under_way(*unlinked) == 0
    assert unexplained(*unlinked, ALL, {"orders.in": 1}) == []
    assert unexplained(broker("london", queue("latest", 30, ring=True)), broker("paris"), ALL, {}) == []


TEN = broker("london", queue(added=10))


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        # What came and went, the larger of both sites.
        ([broker("london", queue(added=10, removed=4)), broker("paris", queue(site="paris", added=9))],
         [broker("london", queue(added=13, removed=6)), broker("paris", queue(site="paris", added=10))],
         {"orders.in": 5}),
        ([broker("london", queue(depth=500))], [broker("london", queue(depth=500))], {"orders.in": 0}),
        ([TEN], [broker("london", queue(added=900), start="1795259999999")], {}),  # counters began anew
        ([broker("london")], [broker("london", queue(added=900))], {}),  # it was not there before
    ],
)  # fmt: skip
def test_what_moved_between_two_looks(before: list[Any], after: list[Any], moved: dict[str, int]) -> None:
    assert rules.traffic(zip(before, after, strict=True)) == moved


NOBODY = Unreachable("connection refused", refused=True)
SILENT = Silent(PAIR, "paris", NOBODY)
SERVES, STANDBY, DOWN, SICK, UNKNOWN = Role.SERVING, Role.STANDBY, Role.DOWN, Role.SICK, Role.UNKNOWN


@pytest.mark.parametrize(
    ("first", "second", "role"),
    [
        (broker("paris"), broker("paris"), STANDBY),
        (broker("paris"), broker("paris", serving=True), SERVES),
        (SILENT, broker("paris", serving=True), SERVES),
        (SILENT, broker("paris"), UNKNOWN),
        (Silent(PAIR, "paris", TimedOut("no answer")), broker("paris"), SICK),
        (Silent(PAIR, "paris", NOBODY, ports_refuse=True), broker("paris", serving=False), DOWN),
    ],
)
def test_a_sites_brokers_must_agree_or_its_role_is_unknown(first: Any, second: BrokerView, role: Role) -> None:
    assert MirrorSnapshot({"paris": {"orders-1": first, "orders-2": second}}).roles == {"paris": role}


@pytest.mark.parametrize(
    ("name", "internal", "business"),
    [
        ("orders.in", False, True),
        ('größe, "neu" <1>', False, True),
        ("$mine", False, True),
        ("orders.in", True, False),
        ("dr-ctl.probe.london", False, False),
        ("rehearsal.dr-ctl.1", False, False),
        # The broker says which queues are its own, whatever they are called.
        ("activemq.notifications", False, True),
        ("$.artemis.mine", False, True),
        ("$sys.mine", False, True),
        ("$sys.mqtt.sessions", True, False),
        ("$ACTIVEMQ_ARTEMIS_MIRROR_paris", True, False),
        # And what MQTT retains is told by itself.
        ("$sys.mqtt.retain.plant.1.state", False, False),
    ],
)
def test_queues_of_clients_are_told_from_those_of_broker_and_tool(name: str, internal: bool, business: bool) -> None:
    assert queue(name, internal=internal).business is business


ALIEN = replace(connection(MIRROR), protocol="AMQP", client="proton-1", remote="10.7.7.7:1")
OUTBOUND = Connection("5f0e", 40123, "10.1.2.4/10.1.2.4:61617", "node-paris", "", "AMQP")
INBOUND = link_connection("london")


@pytest.mark.parametrize(
    ("connections", "peer", "foreign_connections"),
    [
        ((INBOUND,), True, []),
        ((INBOUND, OUTBOUND), False, []),
        ((INBOUND,), False, []),
        ((INBOUND, ALIEN), True, ["proton-1"]),
        ((INBOUND, OUTBOUND, ALIEN), False, ["proton-1"]),
        ((ALIEN,), True, ["proton-1"]),
        ((ALIEN,), False, []),  # whatever speaks AMQP may be the peer of which nothing is known
        ((connection(MIRROR),), False, ["billing"]),
    ],
)
def test_whoever_is_not_the_peer_at_the_listener_of_its_link_is_a_client(
    connections: tuple[Connection, ...], *, peer: bool, foreign_connections: list[str]
) -> None:
    view = broker("london", connections=connections)
    assert [
        guest.client for guest in view.link.foreign_connections(broker("paris") if peer else None)
    ] == foreign_connections


def core(user: str, remote: str = "10.1.2.5:5000", port: int = ADMIN) -> Connection:
    return Connection("c", port, remote, "", user, "CORE", has_session=bool(user))


def test_brokers_of_the_same_site_are_no_clients_and_whoever_else_comes_by_their_listener_is() -> None:
    group = Group("Primary Only", at=f"10.1.2.3:{ADMIN}", cluster=("10.1.2.5:61618",))
    alone = broker("london", acceptors=(*listeners("london", serving=True), listener("cluster", ADMIN)), group=group)
    takes = Consumer("notif.1", ADMIN, "", "10.1.2.5:5001", "cu", 0)
    queues = (*alone.queues, queue("notif.1", internal=True))
    view = replace(alone, connections=(core(""), core("cu", "10.1.2.5:5001")), consumers=(takes,), queues=queues)

    assert view.fence.clients_elsewhere() == []
    closed = (listener("clients", CLIENTS, started=False), *view.acceptors[1:])
    assert list(why_clients_are_not_out(replace(view, acceptors=closed))) == []
    # One with a user that consumes nothing of the broker's own, and one that speaks otherwise.
    assert [
        len(replace(alone, connections=(c,)).fence.clients_elsewhere()) for c in (core("app"), connection(ADMIN))
    ] == [1, 1]
    # At another listener nobody is a broker of the site.
    at_link = core("", port=MIRROR)
    assert replace(alone, connections=(at_link,)).link.foreign_connections(None) == [at_link]


BEFORE = broker("london", queue(added=100, acked=90))
NOW = broker("london", queue(added=150, acked=100), connections=(connection(), connection(), INBOUND))
PORTLESS = (listener("clients", None), listener("mirror", MIRROR))


@pytest.mark.parametrize(
    ("now", "clients", "traffic"),
    [
        (NOW, 2, (25.0, 5.0)),
        (replace(NOW, start="1795251000001"), 2, None),  # another start
        (with_queue(NOW, queue(depth=-1)), 2, None),  # a figure below zero
        (replace(NOW, acceptors=PORTLESS), None, (25.0, 5.0)),  # a port is not told
    ],
)
def test_clients_and_what_came_and_went_between_two_looks(now: BrokerView, clients: Any, traffic: Any) -> None:
    london = snapshot(now, broker("paris"), before=snapshot(BEFORE, broker("paris")), took_s=2.0).brokers[0]
    assert (london.clients, london.traffic) == (clients, traffic)
    alone = snapshot(now, broker("paris")).brokers[0]
    assert (alone.clients, alone.traffic) == (clients, None)


def findings(
    look: MirrorSnapshot, queues: Queues | None = None, target: str = "paris", **accepted: int
) -> list[Finding]:
    asked = Spec("swapover", target, accept_difference={name.replace("_", "."): n for name, n in accepted.items()})
    source = "london" if target == "paris" else "paris"
    return CHECKS.of_move(Case(Rules(queues or Queues(), Drain(), Timeouts()), look, Move(asked, source, {})))


def london(**more: Any) -> MirrorSnapshot:
    return snapshot(replace(OPEN, **more), PARIS)


def paris(**more: Any) -> MirrorSnapshot:
    return snapshot(OPEN, replace(PARIS, **more))


def queued(london: Any = None, paris: Any = None) -> MirrorSnapshot:
    """One queue of one of them, or of both, is otherwise."""
    local = with_queue(OPEN, london) if london else OPEN
    return snapshot(local, with_queue(PARIS, paris) if paris else PARIS)


def config(*clients: str, mirror: str | None = "mirror", link: str | None = None) -> Config:
    return Config(clients or ("clients",), (mirror,) if mirror else None, link)


def beside(*names: str, site: str = "paris", protocols: str = "CORE", **more: Any) -> tuple[Acceptor, ...]:
    """The listeners of a site, and one more."""
    made = (views.listener(name, ADMIN, site=site, protocols=frozenset(protocols.split()), **more) for name in names)
    return (*(PARIS if site == "paris" else OPEN).acceptors, *made)


def link(**more: Any) -> Any:
    return (replace(PARIS.links[0], **more),)


# What is wrong, the finding and its severity, words of its text and of its remedy.
ONE_WRONG = [
    (paris(queues=(replace(PARIS.queues[0], delivering=-1), *PARIS.queues[1:])),
     "DR-QUEUE-003 error", "counts below zero; -1 in delivery", "restart"),
    (london(acceptors=beside("mqtt", site="london", started=False), config=config("clients", "mqtt")),
     "DR-DOOR-002 warning", "serves; acceptor mqtt is closed", ""),
    (paris(acceptors=PARIS.acceptors[:1], config=config(mirror=None)),
     "DR-DOOR-003 error", "only the clients' acceptors have AMQP", "mirror:"),
    (paris(acceptors=(CLIENTS_LISTENER, *beside("north", "south", protocols="AMQP", started=False)[2:]),
           config=config(mirror=None)), "DR-DOOR-003 error", "north, south could all be it", "mirror:"),
    (london(acceptors=beside("admin", site="london"), connections=(views.connection(ADMIN),)),
     "DR-DOOR-005 error", "that a fence would not close; billing", "clients:"),
    (london(consumers=(consumer(port=MIRROR),)), "DR-DOOR-011 error", "orders.in; mirror", "clients:"),
    (paris(connections=(views.link_connection("paris"), views.connection(MIRROR))),
     "DR-DOOR-011 error", "STOMP; billing; acceptor mirror", "an acceptor of its own"),
    (paris(acceptors=(replace(CLIENTS_LISTENER, opens_at_boot=True), LINK_LISTENER)),
     "DR-DOOR-007 warning", "acceptor clients opens at boot", "autoStart=false"),
    (paris(coordinators=(UNLOCKED,)), "DR-DOOR-008 info", "opens without a gate", "unless a link is on the same lock"),
    (london(links=()), "DR-LINK-009 error", "no link from london to the other site", "<mirror/>"),
    (paris(links=(*link(), *link(name="other")), queues=tuple(PARIS.business.values())),
     "DR-LINK-001 error", "cannot tell the link; london, other", "link:"),
    (paris(links=link(retries=3)), "DR-LINK-003 warning", "link london stops for good when it fails", "<amqp-con"),
    (paris(queues=tuple(PARIS.business.values())), "DR-LINK-002 error", "link london has no outflow", "<mirror/>"),
    (queued(paris=outflow("paris", consumers=0)), "DR-LINK-004 warning", "not connected", "l"),
    (queued(paris=outflow("paris", paused=True)), "DR-LINK-005 error", "outflow of link london is paused", "Resume"),
    (queued(queue("$.artemis.internal.sf.x", 2, internal=True)),
     "DR-LINK-006 warning", "$.artemis.internal.sf.x", ""),
    (paris(prepared=("AQID",)), "DR-TX-001 error", "1 prepared transaction; AQID", "roll them back"),
    (queued(queue(depth=3, paused=True)), "DR-QUEUE-001 info", "london; orders.in", ""),
    (paris(version="2.40.0"), "DR-PAIR-002 warning", "2.56.0 at london; 2.40.0 at paris", ""),
    (paris(consumers=(consumer(),)),
     "DR-STANDBY-001 error", "consumers at the standby; orders.in; billing", "Stop these clients"),
    (queued(paris=queue(depth=1, site="paris")),
     "DR-PARITY-001 error", "orders.in: 3 at london, 1 at paris", "--accept-difference"),
    (queued(paris=queue(depth=7, site="paris")),
     "DR-PARITY-001 error", "orders.in: 3 at london, 7 at paris", 'message-acknowledgements="true"'),
    (queued(queue("new", 2)), "DR-PARITY-001 error", "new: 2 at london, 0 at paris (absent there)",
     "--accept-difference"),
    (queued(queue("DLQ", 2)), "DR-PARITY-002 info", "need not be equal; DLQ: 2 at london", ""),
]  # fmt: skip


@pytest.mark.parametrize(("look", "finding", "words", "remedy"), ONE_WRONG)
def test_one_thing_wrong_gives_exactly_its_finding(look: MirrorSnapshot, finding: str, words: str, remedy: str) -> None:
    [reported] = findings(look)
    assert f"{reported.id} {reported.severity.value}" == finding
    assert all(word in reported.text for word in words.split("; ")), reported.text
    assert remedy in reported.remedy
    assert reported.remedy or reported.severity is not Severity.ERROR


@pytest.mark.parametrize(
    ("error", "refuse", "state"),
    [
        (Unreachable("x: connection refused", refused=True), False, " is unknown"),
        (TimedOut("x: no answer"), False, ""),  # a machine that is busy is late, too
        (Unreachable("x: no route", refused=False), True, " is unknown"),
        (Sick("x: out of memory"), True, " is sick"),
        (LoginRefused("x: the login was refused"), True, " is unknown"),
    ],
)
def test_a_silent_broker_is_an_error_with_what_it_said(error: Any, refuse: bool, state: str) -> None:
    [reported] = findings(snapshot(OPEN, Silent(PAIR, "paris", error, ports_refuse=refuse)))
    assert (reported.id, reported.severity, reported.remedy) == ("DR-SITE-001", Severity.ERROR, error.remedy)
    assert reported.text == f"paris/orders-1{state}: {error}"


TEN_HERE = with_queue(OPEN, queue(depth=10))


@pytest.mark.parametrize(
    "look",
    {
        "clocks just close enough": paris(now_ms=PARIS.now_ms - 2000),
        "clients at the serving site": london(consumers=(consumer(),), connections=(views.connection(CLIENTS),)),
        "the broker's own consumer": paris(consumers=(consumer("activemq.notifications"),)),
        "the link's consumer": paris(consumers=(consumer("$ACTIVEMQ_ARTEMIS_MIRROR_london", None),)),
        "an empty queue at one site": queued(queue("empty")),
        "dr-ctl's own queue": queued(queue("dr-ctl.probe.london", 1)),
        "a difference that is under way": snapshot(TEN_HERE, with_queue(PARIS, outflow("paris", depth=7))),
        "a difference that moved between two readings": replace(
            snapshot(TEN_HERE, PARIS), traffic={PAIR: {"orders.in": 7}}
        ),
        "what a run paused, which resumes it": snapshot(
            replace(with_queue(OPEN, queue(depth=3, paused=True)), documents={"dr-ctl.lock.london.7": LOCK}), PARIS
        ),
        "a difference of two closed sites, which the gate asks for": snapshot(
            views.broker("london", queue(depth=9), serving=False), PARIS
        ),
        "consumers at a target that serves already": snapshot(
            LONDON, replace(PARIS, acceptors=views.listeners("paris", serving=True), consumers=(consumer(),))
        ),
    }.items(),
    ids=lambda options: options[0],
)
def test_what_belongs_there_gives_no_finding(look: tuple[str, MirrorSnapshot]) -> None:
    assert findings(look[1]) == []


BAD = replace(PARIS, prepared=("AQID",), version="2.40.0", links=link(started=False), consumers=(consumer(),))


@pytest.mark.parametrize(
    ("look", "told"),
    [
        (queued(paris=queue(depth=3, site="paris", paused=True)), "DR-QUEUE-002 warning; DR-QUEUE-001 info"),
        # Everything that is wrong, errors first.
        (snapshot(with_queue(OPEN, queue("DLQ", 1)), BAD),
         "DR-TX-001 error; DR-LINK-003 error; DR-STANDBY-001 error; DR-PAIR-002 warning; DR-PARITY-002 info"),
        # Of several pairs each is checked.
        (MirrorSnapshot({"london": {"a": OPEN, "b": replace(OPEN, prepared=("xid-1",))},
                     "paris": {"a": PARIS, "b": PARIS}}), "DR-TX-001 error"),
    ],
)  # fmt: skip
def test_all_that_is_wrong_is_told_at_once_errors_first(look: MirrorSnapshot, told: str) -> None:
    rows = [f"{finding.id} {finding.severity.value}" for finding in findings(look)]
    assert sorted(rows) == sorted(told.split("; "))
    assert [text.split()[1] for text in rows] == [text.split()[1] for text in told.split("; ")]


def test_what_was_accepted_or_left_out_by_the_settings_is_not_told() -> None:
    look = queued(paris=queue(depth=1, site="paris"))
    assert [[finding.id for finding in findings(look, orders_in=n)] for n in (2, 1)] == [[], ["DR-PARITY-001"]]
    assert findings(queued(queue("logs", 9)), Queues(include=("orders.#",))) == []
    assert findings(snapshot(OPEN, PARIS), target="london") == []


@pytest.mark.parametrize(
    ("count", "told"), [(0, ""), (2, "q0; q1"), (5, "q0; q1; q2; q3; q4"), (7, "q0; q1; q2; q3; q4 and 2 more")]
)
def test_long_lists_are_cut_and_say_so(count: int, told: str) -> None:
    assert brief([f"q{number}" for number in range(count)]) == told


def test_a_part_of_a_site_is_refused() -> None:
    part = Move(Spec("swapover", "paris", units=("orders-1",)), "london", {})
    reasons = procedure.TOPOLOGY.recipe(Queues(), Drain(), Timeouts()).why_not(snapshot(OPEN, PARIS), part)
    assert [(finding.id, finding.severity) for finding in reasons] == [("DR-UNIT-002", Severity.ERROR)]


def links(*names: str, protocol: str = "AMQP") -> tuple[BrokerConnection, ...]:
    return tuple(BrokerConnection(name, started=True, connected=True, protocol=protocol) for name in names)


LYON = replace(outflow("london"), name=outflow("london").name.replace("paris", "lyon"))


@pytest.mark.parametrize(
    ("view", "name"),
    [
        (broker("london", links=links("paris", "lyon")), "paris"),  # it alone ships
        (broker("london", replace(LYON, internal=False), links=links("paris", "lyon")), "paris"),
        (broker("london", links=links("lyon")), "lyon"),
        (broker("london", LYON, links=links("paris", "lyon")), None),  # both ship
        (broker("london", links=links("paris", protocol="CORE")), None),
    ],
)
def test_the_link_is_the_only_one_that_ships(view: BrokerView, name: str | None) -> None:
    assert (view.broker_connection.name if view.broker_connection is not None else None) == name


def test_a_listener_that_does_not_speak_the_links_protocol_is_not_the_links() -> None:
    for speaks, names in (("CORE", ["mirror"]), ("AMQP", [])):
        more = listener("admin", ADMIN, protocols=frozenset({speaks}))
        view = broker(
            "london", acceptors=(*listeners("london", serving=True), more), config=Config(("clients",), None, None)
        )
        assert [item.name for item in view.link.listeners] == names


@pytest.mark.parametrize(
    ("london", "paris", "found"),
    [
        # One that is absent is as good as an empty one.
        ({"orders.in": 4, "empty": 0}, {}, [("orders.in", 4, 0, True)]),
        ({"orders.in": 4}, {"orders.in": 0}, [("orders.in", 4, 0, False)]),
        ({}, {"orders.in": 2}, [("orders.in", 0, 2, True)]),
        ({"c": 1, "a": 2, "b": 3}, {"b": 3, "a": 9}, [("a", 2, 9, False), ("c", 1, 0, True)]),
    ],
)
def test_every_difference_is_told_by_name_and_accepted_at_exactly_its_size(
    london: dict[str, int], paris: dict[str, int], found: list[Any]
) -> None:
    local, remote = (
        broker(site, *(queue(name, depth, site=site) for name, depth in queues.items()))
        for site, queues in (("london", london), ("paris", paris))
    )
    changed = differences(local, remote, ALL)
    assert [(row.queue, row.source, row.target, None in row.at) for row in changed] == found
    sizes = {name: abs(source - target) for name, source, target, _ in found}
    for more, left in ((0, []), (1, [*sizes]), (-1, [*sizes])):
        accepted = {name: size + more for name, size in sizes.items()}
        asked = Move(Spec("swapover", "paris", accept_difference=accepted), "london", {})
        assert [row.queue for row in not_accepted(changed, asked)] == left
