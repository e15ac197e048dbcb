"""Why a wait does not end: by the links' state, or because the peer takes nothing although all flags are well."""

from __future__ import annotations

import pytest

from dr_ctl.jolokia.errors import TimedOut
from dr_ctl.topologies.mirror.draining import IDLE_S, Trail
from dr_ctl.topologies.mirror.look import Flow
from tests.mirror.test_verify import Hand


def flow(outflow: int = 0, added: int = 0, *, attached: bool = True, pending: int = 0) -> Flow:
    return Flow(
        outflow=outflow,
        outflow_delivering=0,
        outflow_consumers=1 if attached else 0,
        outflow_added=added,
        pending_acks=pending,
        link_started=True,
        link_connected=attached,
        doors_open=(),
        mirror_open=True,
    )


@pytest.mark.parametrize(
    ("first", "then", "says"),
    [
        (flow(10, 10), flow(30, 30), "the peer has taken nothing from london for 2 s: its link hangs"),
        (flow(10, 10), flow(20, 30), None),
        (flow(10, 10), flow(5, 10), None),
        (flow(0, 10), flow(0, 10), None),
        (flow(10, 10, attached=False), flow(10, 10, attached=False), "the link of london is not attached"),
        (flow(10, 10), flow(0, 10, pending=3), "acknowledgements wait to be applied at london (3)"),
    ],
    ids=["nothing shipped", "shipped while more came", "shipped", "empty", "not attached", "not applied"],
)
def test_what_keeps_it_from_ending_is_said(first: Flow, then: Flow, says: str | None) -> None:
    trail, hand = Trail(), Hand()
    trail.why({"london": first, "paris": flow()}, hand)  # type: ignore[arg-type] - a hand that only tells the time

    hand.now_s += 2 * IDLE_S

    assert trail.why({"london": then, "paris": flow()}, hand) == says  # type: ignore[arg-type]


def test_a_broker_that_does_not_answer_is_named_first() -> None:
    trail, hand = Trail(), Hand()

    told = trail.why({"london": flow(10, 10), "paris": TimedOut("http://paris: no answer within 2 s")}, hand)  # type: ignore[arg-type]

    assert told is not None
    assert told.startswith("paris does not answer")
