"""Very many queues are paused and resumed in a few calls, each of exactly those that are meant; where such a call does
not come through they are paused and resumed one by one."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dr_ctl.core.errors import TimedOut
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.plan import Goal
from dr_ctl.jolokia.client import READ_S
from dr_ctl.settings.loader import load
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.mirror import reading as looks
from dr_ctl.topologies.mirror.view import BrokerView
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.faults import Fault, FaultKind, Trigger
from dr_ctl_lab.twin.mirror.broker import MirrorBroker
from dr_ctl_lab.twin.names import is_pattern, matches
from tests.conftest import Command
from tests.twin.matrix import Death, at_calls, dies, done, goals, serving

ALIKE = [f"load.{number}" for number in range(145, 205)]  # more than `LEAST` begin with load.1
PREFIX = beans.queues_by_prefix("london", "load.")
BY_HAND = "load.203"
MOVE, BACK = (("swapover", "--to", site) for site in ("paris", "london"))


@pytest.fixture
def twin(tmp_path: Path) -> Iterator[PlayedTwin]:
    with PlayedTwin.up(tmp_path / "twin", queues=("orders.in", "orders.out", *ALIKE)) as twin:
        yield twin


def asked(twin: PlayedTwin, verb: str) -> list[str]:
    """The beans that were to pause, or to resume."""
    return [change.bean for change in twin.changes() if change.operation.startswith(verb)]


def by_prefix(twin: PlayedTwin, verb: str) -> list[str]:
    return [bean for bean in asked(twin, verb) if is_pattern(bean)]


def paused(twin: PlayedTwin) -> set[str]:
    broker = twin.host("london").broker
    with broker.lock:
        return {name for name, queue in broker.queues.items() if queue.paused}


def test_those_that_begin_alike_are_paused_and_resumed_in_one_call_as_the_plan_has_it(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    plan = dr_ctl(*MOVE, "--dry-run").document["data"]["plan"]
    [calls] = [step["calls"] for step in plan["steps"] if step["verb"] == "quiesce"]
    certain = [call for call in calls if call["when"] is None]

    done(dr_ctl(*MOVE, "--yes"))

    assert (by_prefix(twin, "pause"), by_prefix(twin, "resume")) == ([PREFIX], [PREFIX])
    assert len(asked(twin, "pause")) == len(asked(twin, "resume")) < 10
    assert (paused(twin), serving(twin)) == (set(), ("paris",))
    assert [call["bean"] for call in certain] == asked(twin, "pause")
    [of_all] = [call["about"] for call in certain if call["thing"] == "load.*"]
    assert of_all == "pause the 60 queues whose names begin with load. at london"
    assert [call["at_most"] for call in calls if call["when"] and "left it out" in call["when"]] == [len(ALIKE)]


def test_no_call_is_of_a_queue_that_somebody_paused(twin: PlayedTwin, dr_ctl: Command) -> None:
    twin.pause("london", BY_HAND)
    theirs = beans.queue("london", BY_HAND, "anycast", BY_HAND)

    done(dr_ctl(*MOVE, "--yes"))

    assert by_prefix(twin, "pause") == [beans.queues_by_prefix("london", "load.1")]
    assert not [bean for verb in ("pause", "resume") for bean in asked(twin, verb) if matches(bean, theirs)]
    assert paused(twin) == {BY_HAND}


def test_older_brokers_are_asked_for_each_queue(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MirrorBroker, "version", "2.49.0")

    done(dr_ctl(*MOVE, "--yes"))

    assert (by_prefix(twin, "pause"), paused(twin)) == ([], set())
    assert len(asked(twin, "pause")) == len(asked(twin, "resume")) > len(ALIKE)


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize("kind", [FaultKind.RESET, FaultKind.UNANSWERED], ids=["not done", "done, and not answered"])
def test_a_call_for_all_that_is_lost_is_looked_after(
    twin: PlayedTwin, dr_ctl: Command, verb: str, kind: FaultKind
) -> None:
    twin.host("london").faults.add(Fault(kind, Trigger(operation=verb, bean="load.*")))

    done(dr_ctl(*MOVE, "--yes"))

    one_by_one = [bean for bean in asked(twin, verb) if not is_pattern(bean) and "load." in bean]
    assert len(one_by_one) == (len(ALIKE) if kind is FaultKind.RESET else 0)
    assert (paused(twin), serving(twin)) == (set(), ("paris",))


PAUSE, RESUME = 1, 3  # requests
SOME = [(PAUSE, True, "resume"), (PAUSE, True, "abort"), (RESUME, False, "resume"), (RESUME, True, "abort")]
OTHERS = [(PAUSE, False, "resume"), (PAUSE, False, "abort"), (RESUME, True, "resume"), (RESUME, False, "abort")]


@pytest.mark.parametrize(
    ("at", "after", "repair"), [*SOME, *(pytest.param(*other, marks=pytest.mark.deep) for other in OTHERS)]
)
def test_a_run_that_is_killed_at_it_leaves_no_queue_paused(
    twin: PlayedTwin, dr_ctl: Command, at: int, after: bool, repair: str
) -> None:
    twin.pause("london", BY_HAND)
    dies(dr_ctl, *MOVE, by=Death(at, after=after))
    held = paused(twin)

    ended = dr_ctl(repair, "--yes")

    assert (at, after) != (PAUSE, True) or held > set(ALIKE[:55])
    assert repair == "abort" or ended.code == 0, ended.document
    assert (paused(twin), serving(twin)) == ({BY_HAND}, ("paris" if repair == "resume" else "london",))


def test_one_that_is_created_meanwhile_is_written_down_and_resumed(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is paused with the others: whoever lifts a dead run's pauses has to know."""
    broker, noted = twin.host("london").broker, list[str]()

    def late() -> None:
        with broker.lock:
            if "load.300" not in broker.queues:
                broker.create_queue({"name": "load.300", "routing-type": "ANYCAST"})
                return
            locks = [queue.user for name, queue in broker.queues.items() if name.startswith("dr-ctl.lock.")]
            noted.extend(name for text in locks for names in json.loads(text)["paused"].values() for name in names)

    for goal in (Goal.PAUSE, Goal.CLOSE):
        at_calls(monkeypatch, goal, late, first=True)
    done(dr_ctl(*MOVE, "--yes"))

    assert {"load.300", *ALIKE} <= set(noted)
    assert paused(twin) == set()


def test_while_clients_are_out_no_look_asks_for_all_figures_of_all_queues(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first call of the fence to the opening one; the lasting fence is lifted in between. Each figure costs a
    broker of ten thousand queues a tenth of a second."""
    done(dr_ctl(*MOVE, "--yes"))  # london's roles are kept out from then on
    look, sent, whole = looks.read, goals(monkeypatch), list[int]()

    def looked(*arguments: Any, **more: Any) -> BrokerView:
        so_far = {call for request in sent for call in request}
        if Goal.CLOSE in so_far and Goal.OPEN not in so_far:
            whole.append(len(sent))
        return look(*arguments, **more)

    monkeypatch.setattr(looks, "read", looked)

    done(dr_ctl(*BACK, "--yes"))

    assert {Goal.CLOSE, Goal.REVOKE, Goal.GRANT, Goal.OPEN} <= {call for request in sent for call in request}
    assert whole == []


@pytest.mark.parametrize("many", [50, 1000], ids=["it has many", "it has few"])
def test_only_a_broker_with_many_queues_is_given_more_time_to_tell_of_them(
    twin: PlayedTwin, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    look, given = looks.read, list[float]()

    def slow(*arguments: Any, timeout_s: float, **more: Any) -> BrokerView:
        given.append(timeout_s)
        if timeout_s <= READ_S:
            raise TimedOut("no answer in time")
        return look(*arguments, timeout_s=timeout_s, **more)

    monkeypatch.setattr(looks, "read", slow)
    monkeypatch.setattr(looks, "MANY_QUEUES", many)

    with closing(looks.Observer(looks.READS, load(twin.settings_path), Timeouts(), Path())) as observer:
        [london] = observer.at("london")
        if many > len(ALIKE):
            with pytest.raises(TimedOut):
                london.read()
            assert given == [READ_S]
        else:
            assert set(ALIKE) < set(london.read().business)
            assert given[0] == READ_S < given[1] < READ_S + 1
