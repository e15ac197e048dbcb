"""The wait at the gate, and parity: both sites hold the same, by counts and by the messages' identity."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dr_ctl.core.errors import TimedOut
from dr_ctl.core.model import ExitCode
from dr_ctl.core.patience import Patience
from dr_ctl.engine.outcome import Done, Outcome, Refused
from dr_ctl.engine.plan import Ask, PlannedStep
from dr_ctl.engine.ports import Move
from dr_ctl.jolokia.client import Reader
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.common import queues
from dr_ctl.topologies.common.gate import Sample
from dr_ctl.topologies.mirror import parity
from dr_ctl.topologies.mirror.access import Observer
from dr_ctl.topologies.mirror.parity import Difference
from dr_ctl.topologies.mirror.verifier import MirrorVerifier
from dr_ctl.topologies.mirror.view import BrokerView
from tests.topologies import made
from tests.topologies.mirror.pair import broker_of
from tests.topologies.mirror.views import PAIR, broker, outflow, queue, with_queue

Look = BrokerView | TimedOut


def _message(born: str, number: int) -> dict[str, Any]:
    ids = {"StringProperties": {"x-opt-amq-bkr-id": born}, "LongProperties": {"x-opt-amq-mr-id": number}}
    return {"messageID": str(number), "protocol": "CORE", **ids}


@dataclass
class Scripted:
    """One broker whose looks are given, the last of them again and again; `browsed` are the ids of its messages."""

    site: str
    looks: Sequence[Look]
    browsed: Sequence[int] = (1, 2, 3)
    unnamed: int = 0
    pair: str = PAIR
    taken: int = 0

    def names(self) -> BrokerView:
        return closed(self.site)

    def counts(self) -> BrokerView:
        told = self.looks[min(self.taken, len(self.looks) - 1)]
        self.taken += 1
        if isinstance(told, TimedOut):
            raise told
        return told

    def reader(self) -> Reader:
        broker = broker_of(self.site)
        rows = [_message("born", number) for number in self.browsed]
        rows += [{**_message("born", 0), "protocol": "unheard of"}] * self.unnamed
        broker.instead["browse"] = {"value": rows, "status": 200}
        return broker.reader()


def closed(site: str, *more: Any, depth: int = 3) -> BrokerView:
    return broker(site, queue("orders.in", depth, site=site), *more, serving=False)


def shipping(site: str) -> BrokerView:
    return with_queue(closed(site), outflow(site, depth=4))


LONDON, PARIS = closed("london"), closed("paris")
NO_ANSWER = TimedOut("paris: no answer within 5 s")


class Gate:
    """A gate to wait at; `outcome` is how the wait ended."""

    def __init__(self, london: Sequence[Look], paris: Sequence[Look], **more: Any) -> None:
        drain = Drain.model_validate({"poll": f"{1000 * more['poll']:g}ms"})
        self.london = Scripted("london", london)
        self.paris = Scripted("paris", paris, more.get("browsed", (1, 2, 3)), more.get("unnamed", 0))
        self.hand = made.Hand()
        observer = SimpleNamespace(
            brokers={"london": {PAIR: self.london}, "paris": {PAIR: self.paris}},
            queues=Queues(),
            patience=Patience(),
            together=lambda ask, of: [ask(each) for each in of],
            ways=lambda move: [(self.london, self.paris)],
        )
        verifying = MirrorVerifier(cast("Observer", observer), drain.poll)
        verifying.begun = more.get("begun", {})
        step = PlannedStep(8, "verify", "paris", "", limits={"within": 10.0, "stable": more.get("stable", 3)})
        ask = Ask("swapover", "paris", accept_difference=more.get("accepted", {}))
        self.outcome: Outcome = verifying.verify(step, Move(ask, "london", {}), cast("Any", self.hand))
        assert all({*each} == {"london", "paris"} for each in self.hand.sampled)


HELD = [Sample(-1.0 + number / 10, LONDON, PARIS) for number in range(3)]
LESS = with_queue(PARIS, queue("orders.in", 3, site="paris", added=2))


@pytest.mark.parametrize(
    ("paris", "more", "taken", "took_s", "samples"),
    [
        # As many good samples as asked for; one sample is a moment, not a window.
        *(([PARIS], {"stable": n, "poll": 1.0}, max(n, 2), None, max(n, 2)) for n in (1, 2, 3, 7)),
        # Where only the least window has to pass the last look is at its end.
        *(([PARIS], {"stable": n}, n, 0.05, n) for n in (2, 4)),
        # The first still look before counts for the window and not as a look at the gate.
        ([PARIS], {"stable": 2, "begun": {PAIR: [Sample(-1.0, LONDON, PARIS)]}}, 2, 0.01, 2),
        # Looks at which the gate held before count, and one of its own is taken.
        ([PARIS], {"begun": {PAIR: HELD}}, 1, None, 3),
        # What came in since then begins the window anew.
        ([PARIS], {"stable": 2, "begun": {PAIR: [Sample(-1.0, LONDON, LESS)]}}, 3, 0.06, 2),
        # Looks before count no more once the gate is seen shut.
        *(([bad, PARIS], {"poll": 0.1, "begun": {PAIR: HELD}}, 4, None, 3) for bad in (shipping("paris"), NO_ANSWER)),
    ],
)
def test_the_gate_opens_after_a_window_of_good_samples(
    paris: Sequence[Look], more: Any, taken: int, took_s: float | None, samples: int
) -> None:
    gate = Gate([LONDON], paris, **{"poll": 0.01, **more})
    assert isinstance(gate.outcome, Done)
    assert gate.london.taken == taken
    assert took_s is None or gate.hand.now_s == pytest.approx(took_s)
    assert gate.outcome.evidence[PAIR] == {"samples": samples, "ids_compared": 3, "depths": {"orders.in": 3}}


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (shipping("paris"), "4 to ship"),
        (NO_ANSWER, "no answer"),
        (with_queue(PARIS, queue("orders.in", 3, site="paris", added=4)), "paris: orders.in is still being added to"),
        (replace(PARIS, start="1795259999999"), "restarted"),
    ],
)
def test_one_bad_sample_begins_the_window_anew(bad: Look, told: str) -> None:
    gate = Gate([LONDON], [PARIS, PARIS, bad, PARIS], poll=1.0)
    assert isinstance(gate.outcome, Done)
    assert gate.paris.taken == 6
    assert any(told in each for each in gate.hand.whys if each is not None)


@pytest.mark.parametrize(
    ("looks", "why"),
    [
        ([shipping("paris")], "paris: 4 to ship"),
        ([NO_ANSWER], "no answer within 5 s"),
        ([PARIS, shipping("paris")] * 100, "paris: 4 to ship"),
    ],
)
def test_a_gate_that_does_not_open_in_time_says_what_kept_it_shut(looks: list[Look], why: str) -> None:
    gate = Gate([LONDON], looks, poll=1.0)
    assert isinstance(gate.outcome, Refused)
    assert gate.outcome.code is ExitCode.DRAIN_TIMEOUT
    assert gate.outcome.text.startswith("the gate did not open in time")
    assert any(why in told for told in gate.hand.whys if told is not None)
    assert gate.hand.now_s == pytest.approx(11.0)


def test_a_difference_that_stays_for_two_seconds_is_refused_and_one_that_goes_away_is_waited_for() -> None:
    gate = Gate([LONDON], [closed("paris", depth=1)], poll=0.5)
    assert isinstance(gate.outcome, Refused)
    assert gate.outcome.code is ExitCode.REVERTED
    assert [(each.id, bool(each.remedy)) for each in gate.outcome.findings] == [("DR-PARITY-003", True)]
    assert "orders.in: 3 at london, 1 at paris" in gate.outcome.text
    assert 2.0 < gate.hand.now_s < 4.5
    # Applied late, not added: the counter stands where the mirror put it.
    late = [with_queue(PARIS, queue("orders.in", 3, site="paris", added=1))]
    assert isinstance(Gate([LONDON], [*[closed("paris", depth=1)] * 4, *late], poll=0.5).outcome, Done)


def test_other_messages_in_equal_number_are_refused() -> None:
    gate = Gate([LONDON], [PARIS], poll=1.0, browsed=(1, 2, 9))
    assert isinstance(gate.outcome, Refused)
    assert gate.outcome.text == "orders.in: 1 message(s) only at london, 1 only at paris, although the counts are equal"
    # What a person needs to look at them, and to move all the same.
    [finding] = gate.outcome.findings
    assert finding.id == "DR-PARITY-004"
    assert finding.more == ["orders.in, only at london: born:3", "orders.in, only at paris: born:9"]
    assert "--accept-difference orders.in=1 moves all the same" in finding.remedy
    ids = {"orders.in": {"only at london": ["born:3"], "only at paris": ["born:9"]}}
    assert cast("Any", gate.outcome.evidence["ids"]) == ids


def test_where_an_origin_is_not_shown_counts_decide_and_that_is_said() -> None:
    gate = Gate([LONDON], [PARIS], poll=1.0, browsed=(1, 2), unnamed=1)
    assert isinstance(gate.outcome, Done)
    assert [each.id for each in gate.outcome.findings] == ["DR-PARITY-005"]
    assert gate.outcome.findings[0].text.endswith("shows no origin of them: 1 of orders.in")
    # More messages are apart than origins are not shown.
    refused = Gate([LONDON], [PARIS], poll=1.0, browsed=(1,), unnamed=1)
    assert isinstance(refused.outcome, Refused)
    assert cast("Any", refused.outcome.evidence["ids"])["orders.in"]["only at london"] == ["born:2", "born:3"]


@pytest.mark.parametrize(("depth", "compared"), [(0, 0), (1000, 3), (1001, 0)])
def test_identities_are_compared_where_a_queue_is_shallow_enough(depth: int, compared: int) -> None:
    gate = Gate([closed("london", depth=depth)], [closed("paris", depth=depth)], poll=1.0)
    assert isinstance(gate.outcome, Done)
    assert cast("Any", gate.outcome.evidence[PAIR])["ids_compared"] == compared


ALL = Queues()


def differing(name: str = "orders.in", source: int = 5, target: int = 3, **kind: Any) -> list[Difference]:
    return parity.differences(
        broker("london", queue(name, source, **kind)), broker("paris", queue(name, target, site="paris", **kind)), ALL
    )


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
    assert [found.blocks for found in differing(name, **kind)] == blocks


def test_a_dead_letter_address_of_either_site_is_excepted() -> None:
    london = broker("london", queue("own.dead", 4), queue("orders.in", dead_letter_address=None))
    paris = broker("paris", queue("orders.in", site="paris", dead_letter_address="own.dead"))
    assert [each.blocks for each in parity.differences(london, paris, ALL)] == [False]


@pytest.mark.parametrize(
    ("queues", "names"),
    [
        (Queues(), ["logs", "orders", "orders.in", "orders.out"]),
        (Queues(include=("orders.#",)), ["orders", "orders.in", "orders.out"]),
        (Queues(include=("orders.*",)), ["orders.in", "orders.out"]),
        (Queues(exclude=("orders.in", "logs")), ["orders", "orders.out"]),
        (Queues(include=("orders.in",), exclude=("#",)), []),
    ],
)
def test_the_settings_narrow_what_is_compared(queues: Queues, names: list[str]) -> None:
    london = broker("london", *(queue(name, 1) for name in ("orders", "orders.in", "orders.out", "logs")))
    assert [each.queue for each in parity.differences(london, broker("paris"), queues)] == names


def pair(depth: int, there: int, **peer: Any) -> tuple[Any, Any]:
    return broker("london", queue(depth=depth)), broker("paris", queue(depth=there, site="paris"), **peer)


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
    assert parity.under_way(london, paris) == shipping + back + pending
    assert (parity.unexplained(london, paris, ALL, moved) == []) is explained


@pytest.mark.parametrize("blind", [0, 1])
def test_an_outflow_that_cannot_be_seen_explains_nothing(blind: int) -> None:
    views = [*pair(5, 4)]
    views[blind] = replace(views[blind], config=replace(views[blind].config, link="mistyped"))
    assert parity.under_way(*views) is None
    assert len(parity.unexplained(*views, ALL, {"orders.in": 1000})) == 1


def test_a_site_without_a_link_has_nothing_under_way_and_an_excepted_kind_is_never_unexplained() -> None:
    unlinked = pair(5, 4, links=())
    assert parity.under_way(*unlinked) == 0
    assert parity.unexplained(*unlinked, ALL, {"orders.in": 1}) == []
    assert parity.unexplained(broker("london", queue("latest", 30, ring=True)), broker("paris"), ALL, {}) == []


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
    assert queues.moved(before, after) == moved
