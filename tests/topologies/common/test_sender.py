"""Many calls to one broker go out in several POSTs, each with its own time limit; none behind one without an answer."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dr_ctl.core.errors import TimedOut
from dr_ctl.engine.outcome import Done, Outcome
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.common.calls import pause
from dr_ctl.topologies.common.sender import MOST_IN_A_POST, Sender
from tests.topologies.continuity.views import PAIR, broker, queue

LONDON = broker("london")
CALLS = [pause(LONDON, queue(f"orders.{n}")) for n in range(2 * MOST_IN_A_POST + 1)]


class Channel:
    """One broker; the POST of that number has no answer."""

    def __init__(self, silent: int | None = None) -> None:
        self.posts: list[Sequence[Call]] = []
        self._silent = silent

    def send(self, calls: Sequence[Call]) -> list[Outcome]:
        self.posts.append(calls)
        if len(self.posts) - 1 == self._silent:
            raise TimedOut("http://london: no answer")
        return [Done(call.about) for call in calls]


def sent(channel: Channel) -> list[Outcome]:
    access = SimpleNamespace(channel=lambda: channel)
    observer: Any = SimpleNamespace(brokers={"london": {PAIR: access}})
    return Sender(observer).send(CALLS)


def test_each_is_sent_once_and_in_order() -> None:
    channel = Channel()
    told = sent(channel)
    assert [call for post in channel.posts for call in post] == CALLS
    assert [each.text for each in told] == [call.about for call in CALLS]
    assert max(len(post) for post in channel.posts) <= MOST_IN_A_POST


@pytest.mark.parametrize("silent", [0, 1])
def test_what_comes_behind_a_silence_is_not_sent(silent: int) -> None:
    channel = Channel(silent)
    told = sent(channel)
    assert len(channel.posts) == silent + 1
    words = [each.word for each in told]
    assert words.index("unknown") == silent * MOST_IN_A_POST
    assert words.count("unknown") == MOST_IN_A_POST
    assert set(words[(silent + 1) * MOST_IN_A_POST :]) == {"refused"}
