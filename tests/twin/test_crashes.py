"""The process of a run dies before and after every request that changes something: resume ends where an undisturbed
run would, with each effect applied once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Outcome
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.common.sender import Sender
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.classic.brokersync.broker import BrokerSyncBroker
from dr_ctl_lab.twin.kinds import BROKERSYNC, FANOUT
from tests.broker.driving import Ended
from tests.conftest import Command
from tests.topologies.fanout import stories
from tests.twin.classic_subject import ORDERS, ClassicSubject
from tests.twin.matrix import OPERATIONS


class Died(BaseException):
    """The process ends here; nothing on the way may catch it."""


class Death:
    """Ends the process right before or right after its n-th request that changes something; `requests` says of each
    before which of the calls it was made, and after which it was answered."""

    def __init__(self, at: int | None, *, after: bool, calls: Sequence[object] = ()) -> None:
        self.at, self.after = at, after
        self.requests = list[tuple[int, int]]()
        self._calls = calls
        self._counting = threading.Lock()

    def strike(self, monkeypatch: pytest.MonkeyPatch) -> None:
        post = Sender._post

        def mortal(sender: Sender, calls: Sequence[Call]) -> Sequence[Outcome]:
            made = len(self._calls) + 1
            with self._counting:  # both sites' requests may go out at the same time
                nth = len(self.requests)
                self.requests.append((made, made))
            strikes = nth + 1 == self.at
            if strikes and not self.after:
                raise Died
            outcomes = post(sender, calls)
            self.requests[nth] = (made, len(self._calls))
            if strikes:
                raise Died
            return outcomes

        monkeypatch.setattr(Sender, "_post", mortal)


def effects(twin: PlayedTwin) -> list[tuple[str, str, str]]:
    """What was changed, each as often as it was, without the documents of dr-ctl's own and its probe. A role's setting
    that is taken away twice in a row was taken away once: that it is in force does not say whether it still stands."""
    found = []
    for each in twin.changes():
        if "Queue(" in each.operation or "BrokerConnection(" in each.operation:
            continue
        effect = (each.site, each.bean, each.operation)
        if "SecuritySettings(" not in each.operation or found[-1:] != [effect]:
            found.append(effect)
    return sorted(found)


def bare(told: dict[str, Any]) -> dict[str, Any]:
    """A scene without what differs from twin to twin: where messages were born."""
    return {
        name: {"settable": each["settable"], "messages": {queue: len(held) for queue, held in each["messages"].items()}}
        for name, each in told.items()
    }


def lived(twin: PlayedTwin, dr_ctl: Command, operation: str) -> Ended | None:
    """The end of a run, None where it died on the way."""
    try:
        return dr_ctl(*OPERATIONS[operation].words, "--yes")
    except Died:
        return None


def arrive(twin: PlayedTwin, count: int) -> None:
    """So many messages come to both sites; an agent that deletes copies is held by the run that is open."""
    if twin.kind.topology == FANOUT:
        stories.send(twin, *(f"id-{number}" for number in range(count)))
        return
    for broker in twin.brokers(BrokerSyncBroker):
        if broker.agent is not None:
            broker.agent.stop()
    pair = ClassicSubject(twin)
    with pair.client("london") as client:
        for _ in range(count):
            client.send(ORDERS)
    pair.settled()


def consume_all(twin: PlayedTwin, site: str) -> None:
    """Clients of a site consume what it holds."""
    with twin.still():
        broker = twin.host(site).broker
        queue = broker.queues[ORDERS]
        for message in list(queue.live()):
            broker.remove(queue, message)


@pytest.mark.parametrize("topology", [BROKERSYNC, FANOUT])
def test_a_run_that_was_killed_once_its_target_was_open_is_finished_although_clients_work_there(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrive(twin, 10)
    post = Sender._post

    def dies_once_open(sender: Sender, calls: Sequence[Call]) -> Sequence[Outcome]:
        outcomes = post(sender, calls)
        if any(call.goal is Goal.OPEN and call.site == "paris" for call in calls):
            raise Died
        return outcomes

    with monkeypatch.context() as patch:
        patch.setattr(Sender, "_post", dies_once_open)
        assert lived(twin, dr_ctl, "swapover") is None
    consume_all(twin, "paris")

    ended = dr_ctl("resume", "--yes")

    assert (ended.code, {each["id"] for each in ended.document["findings"]} - {"DR-AGENT-008"}) == (0, set())
    assert (twin.depth("london", ORDERS), twin.depth("paris", ORDERS)) == (10, 0)
