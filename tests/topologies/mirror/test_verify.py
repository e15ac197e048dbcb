"""The wait at the gate: a window of samples in a row, then parity by counts and by the messages' identity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from dr_ctl.topologies.common.gate import Sample
from dr_ctl.topologies.mirror.access import Observer
from dr_ctl.topologies.mirror.verifier import MirrorVerifier
from dr_ctl.topologies.mirror.view import BrokerView
from tests.topologies.mirror.pair import _message, mirrored_pair
from tests.topologies.mirror.views import PAIR, broker, outflow, queue, with_queue

Look = BrokerView | TimedOut


@dataclass
class Hand:
    """What a run gives a driver, on a clock that only waiting moves."""

    now_s: float = 0.0
    told: list[str | None] = field(default_factory=list)

    def sample(self, evidence: Mapping[str, Any]) -> None:
        assert set(evidence) == {"london", "paris"}

    def waiting(self, about: str, depth: int, why_not_moving: str | None) -> None:
        self.told.append(why_not_moving)

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def monotonic(self) -> float:
        return self.now_s


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
        broker = next(each for each in mirrored_pair() if each.site == self.site)
        rows = [_message("born", number) for number in self.browsed]
        rows += [{**_message("born", 0), "protocol": "unheard of"}] * self.unnamed
        broker.instead["browse"] = {"value": rows, "status": 200}
        return broker.reader()


@dataclass
class Pair:
    """The part of an observer that the gate needs, without threads."""

    brokers: Mapping[str, Mapping[str, Scripted]]
    queues: Queues
    patience: Patience = field(default_factory=Patience)

    def together(self, ask: Callable[[Scripted], Any], of: Sequence[Scripted]) -> list[Any]:
        return [ask(each) for each in of]

    def ways(self, move: Move) -> list[tuple[Scripted, Scripted]]:
        return [(self.brokers[move.source][pair], there) for pair, there in self.brokers[move.target].items()]


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
        queues = Queues()
        self.london = Scripted("london", london)
        self.paris = Scripted("paris", paris, more.get("browsed", (1, 2, 3)), more.get("unnamed", 0))
        self.hand = Hand()
        observer = Pair({"london": {PAIR: self.london}, "paris": {PAIR: self.paris}}, queues)
        verifying = MirrorVerifier(cast("Observer", observer), drain.poll)
        verifying.begun = more.get("begun", {})
        step = PlannedStep(8, "verify", "paris", "", limits={"within": 10.0, "stable": more.get("stable", 3)})
        ask = Ask("swapover", "paris", accept_difference=more.get("accepted", {}))
        self.outcome: Outcome = verifying.verify(step, Move(ask, "london", {}), cast("Any", self.hand))


@pytest.mark.parametrize("stable", [1, 2, 3, 7])
def test_the_gate_opens_after_as_many_good_samples_as_asked_for(stable: int) -> None:
    gate = Gate([LONDON], [PARIS], stable=stable, poll=1.0)

    # One sample is a moment, not a window.
    assert isinstance(gate.outcome, Done)
    assert gate.london.taken == gate.paris.taken == max(stable, 2)
    assert gate.outcome.evidence == {
        PAIR: {"samples": max(stable, 2), "ids_compared": 3, "depths": {"orders.in": 3}},
    }


@pytest.mark.parametrize("stable", [2, 4])
def test_where_only_the_least_window_has_to_pass_the_last_look_is_at_its_end(stable: int) -> None:
    gate = Gate([LONDON], [PARIS], stable=stable, poll=0.01)

    assert isinstance(gate.outcome, Done)
    assert gate.hand.now_s == pytest.approx(0.05)
    assert gate.london.taken == stable


def test_the_first_still_look_before_counts_for_the_window_and_not_as_a_look_at_the_gate() -> None:
    gate = Gate([LONDON], [PARIS], stable=2, poll=0.01, begun={PAIR: [Sample(-1.0, LONDON, PARIS)]})

    assert isinstance(gate.outcome, Done)
    assert gate.hand.now_s == pytest.approx(0.01)
    assert gate.outcome.evidence[PAIR] == {"samples": 2, "ids_compared": 3, "depths": {"orders.in": 3}}


def test_looks_at_which_the_gate_held_before_count_and_one_of_its_own_is_taken() -> None:
    before = [Sample(-1.0 + number / 10, LONDON, PARIS) for number in range(3)]
    gate = Gate([LONDON], [PARIS], stable=3, poll=0.01, begun={PAIR: before})

    assert isinstance(gate.outcome, Done)
    assert gate.london.taken == 1
    assert gate.outcome.evidence[PAIR] == {"samples": 3, "ids_compared": 3, "depths": {"orders.in": 3}}


@pytest.mark.parametrize("bad", [shipping("paris"), NO_ANSWER])
def test_looks_before_count_no_more_once_the_gate_is_seen_shut(bad: Look) -> None:
    before = [Sample(-1.0 + number / 10, LONDON, PARIS) for number in range(3)]
    gate = Gate([LONDON], [bad, PARIS], stable=3, poll=0.1, begun={PAIR: before})

    assert isinstance(gate.outcome, Done)
    assert gate.london.taken == 1 + 3


def test_what_came_in_since_then_begins_the_window_anew() -> None:
    less = with_queue(PARIS, queue("orders.in", 3, site="paris", added=2))
    gate = Gate([LONDON], [PARIS], stable=2, poll=0.01, begun={PAIR: [Sample(-1.0, LONDON, less)]})

    assert isinstance(gate.outcome, Done)
    assert gate.hand.now_s == pytest.approx(0.01 + 0.05)
    assert [told for told in gate.hand.told if told is not None] == ["paris: orders.in is still being added to"]


@pytest.mark.parametrize(
    "bad",
    [
        shipping("paris"),
        NO_ANSWER,
        with_queue(PARIS, queue("orders.in", 3, site="paris", added=4)),
        replace(PARIS, start="1795259999999"),
    ],
    ids=["something to ship", "no answer", "something added", "a restart"],
)
def test_one_bad_sample_begins_the_window_anew(bad: Look) -> None:
    gate = Gate([LONDON], [PARIS, PARIS, bad, PARIS], poll=1.0)

    assert isinstance(gate.outcome, Done)
    assert gate.paris.taken == 6
    assert [told for told in gate.hand.told if told is not None] != []


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
    assert why in gate.outcome.text or "not stable for long enough" in gate.outcome.text
    assert any(why in told for told in gate.hand.told if told is not None)
    assert gate.hand.now_s == pytest.approx(11.0)


def test_a_difference_that_stays_for_two_seconds_is_refused() -> None:
    gate = Gate([LONDON], [closed("paris", depth=1)], poll=0.5)

    assert isinstance(gate.outcome, Refused)
    assert gate.outcome.code is ExitCode.REVERTED
    assert [(each.id, bool(each.remedy)) for each in gate.outcome.findings] == [("DR-PARITY-003", True)]
    assert "orders.in: 3 at london, 1 at paris" in gate.outcome.text
    assert 2.0 < gate.hand.now_s < 4.5


def test_a_difference_that_goes_away_is_waited_for() -> None:
    behind = [closed("paris", depth=1)] * 4
    # Applied late, not added: the counter stands where the mirror put it.
    late = [with_queue(PARIS, queue("orders.in", 3, site="paris", added=1))]

    gate = Gate([LONDON], [*behind, *late], poll=0.5)

    assert isinstance(gate.outcome, Done)


@pytest.mark.parametrize(("accepted", "kind"), [({"orders.in": 2}, Done), ({"orders.in": 1}, Refused)])
def test_a_difference_is_accepted_at_exactly_its_size(accepted: Mapping[str, int], kind: type[Outcome]) -> None:
    gate = Gate([LONDON], [closed("paris", depth=1)], poll=0.5, accepted=accepted)

    assert isinstance(gate.outcome, kind)


def test_other_messages_in_equal_number_are_refused() -> None:
    gate = Gate([LONDON], [PARIS], poll=1.0, browsed=(1, 2, 9))

    assert isinstance(gate.outcome, Refused)
    assert gate.outcome.findings[0].id == "DR-PARITY-004"
    assert gate.outcome.text == "orders.in: 1 message(s) only at london, 1 only at paris, although the counts are equal"
    # What a person needs to look at them, and to move all the same.
    finding = gate.outcome.findings[0]
    assert finding.more == ["orders.in, only at london: born:3", "orders.in, only at paris: born:9"]
    assert "--accept-difference orders.in=1 moves all the same" in finding.remedy
    ids = {"orders.in": {"only at london": ["born:3"], "only at paris": ["born:9"]}}
    assert cast("Any", gate.outcome.evidence["ids"]) == ids


def test_other_messages_are_accepted_at_exactly_their_number() -> None:
    gate = Gate([LONDON], [PARIS], poll=1.0, browsed=(1, 2, 9), accepted={"orders.in": 1})
    refused = Gate([LONDON], [PARIS], poll=1.0, browsed=(1, 8, 9), accepted={"orders.in": 1})

    assert isinstance(gate.outcome, Done)
    assert isinstance(refused.outcome, Refused)


def test_where_an_origin_is_not_shown_counts_decide_and_that_is_said() -> None:
    gate = Gate([LONDON], [PARIS], poll=1.0, browsed=(1, 2), unnamed=1)

    assert isinstance(gate.outcome, Done)
    assert [each.id for each in gate.outcome.findings] == ["DR-PARITY-005"]
    assert gate.outcome.findings[0].text.endswith("shows no origin of them: 1 of orders.in")


def test_more_messages_apart_than_origins_that_are_not_shown_are_refused() -> None:
    gate = Gate([LONDON], [PARIS], poll=1.0, browsed=(1,), unnamed=1)

    assert isinstance(gate.outcome, Refused)
    assert cast("Any", gate.outcome.evidence["ids"])["orders.in"]["only at london"] == ["born:2", "born:3"]


@pytest.mark.parametrize(("depth", "compared"), [(0, 0), (1000, 3), (1001, 0)])
def test_identities_are_compared_where_a_queue_is_shallow_enough(depth: int, compared: int) -> None:
    gate = Gate([closed("london", depth=depth)], [closed("paris", depth=depth)], poll=1.0)

    assert isinstance(gate.outcome, Done)
    assert cast("Any", gate.outcome.evidence[PAIR])["ids_compared"] == compared
