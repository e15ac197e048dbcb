"""The planned move on real brokers: nothing lost, nothing twice; what is not of its business stays as it was."""

import pytest

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, on_queue, send, state_of

pytestmark = [pytest.mark.broker, pytest.mark.deep]

MOVES = 10
ODD = ('say "hello"', "a,b=c", "$price", "<b>&amp;", "two words", "Bestellungen für Köln", "who?")
ASIDE = "put aside"


def test_ten_moves_under_load_lose_nothing_and_double_nothing(lab: Lab, operator: Operator) -> None:
    """Queues with odd names among them, and one that somebody has paused."""
    for name in (*ODD, ASIDE):
        lab.create_queue(name)
        send(lab, "london", name, 3)
    on_queue(lab, "london", ASIDE, "pause(boolean)", True)
    lab.delay(25)

    with lab.load(300, work_ms=1, queues=("orders.in", "orders.out")) as load:
        load.wait_for(300)
        ends = []
        for number in range(MOVES):
            ends.append(operator.run("swapover", "--to", ("paris", "london")[number % 2], "--yes"))
            load.wait_for(load.counts().sent + 200)
            calls = [call["about"] for call in operator.calls()]
            here = ("london", "paris")[number % 2]
            assert {f"{verb} {name} at {here}" for name in ODD for verb in ("pause", "resume")} <= {*calls}
            assert not [call for call in calls if call.endswith(f"{ASIDE} at london")]
            assert [each["outcome"] for each in operator.journal() if each["step"] == "11-probe"][-1] == "succeeded"
        verdict = load.stop()
    shown = operator.run("runs", "show")

    assert [end.code for end in ends] == [0] * MOVES, [end.document for end in ends if end.code]
    assert verdict.counts.sent > MOVES * 200
    assert (len(verdict.lost), len(verdict.duplicates), len(verdict.redelivered)) == (0, 0, 0)
    assert verdict.drained
    assert not verdict.unexpected
    after = state_of(lab)
    assert [after[site]["orders-1"]["paused"] for site in ("london", "paris")] == [[ASIDE], []]
    for site in ("london", "paris"):
        depths = lab.admin(site).depths()
        assert {name: depths[name] for name in (*ODD, ASIDE)} == dict.fromkeys((*ODD, ASIDE), 3)
        assert not [name for name in depths if name.startswith("dr-ctl.probe.")]
    assert shown.code == 0
