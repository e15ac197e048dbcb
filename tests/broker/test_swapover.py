"""The planned move on real brokers: nothing lost, nothing twice; what is said beforehand is what is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import Operator, on_queue, recorded, send, state_of

pytestmark = [pytest.mark.broker, pytest.mark.deep]

MOVES = 10


def test_ten_moves_under_load_lose_nothing_and_double_nothing(lab: Lab, operator: Operator) -> None:
    lab.delay(25)

    with lab.load(300, work_ms=1) as load:
        load.wait_for(300)
        ends = []
        for number in range(MOVES):
            ends.append(operator.run("swapover", "--to", ("paris", "london")[number % 2], "--yes"))
            load.wait_for(load.counts().sent + 200)
        verdict = load.stop()

    assert [end.code for end in ends] == [0] * MOVES, [end.document for end in ends if end.code]
    assert verdict.counts.sent > MOVES * 200
    assert (len(verdict.lost), len(verdict.duplicates), len(verdict.redelivered)) == (0, 0, 0)
    assert verdict.drained
    assert not verdict.unexpected


def test_the_same_command_again_changes_nothing(lab: Lab, operator: Operator, tmp_path: Path) -> None:
    with recorded(lab, tmp_path / "recorded") as (settings, recorders):
        once = Operator(lab, operator.state, settings)
        first = once.run("swapover", "--to", "paris", "--yes")
        seen = {site: len(recorder.changes) for site, recorder in recorders.items()}

        again = once.run("swapover", "--to", "paris", "--yes")

    assert (first.code, again.code) == (0, 0)
    assert seen["london"] > 0
    assert seen["paris"] > 0
    assert {site: len(recorder.changes) for site, recorder in recorders.items()} == seen
    assert again.document["data"]["pairs"] == [{"name": "orders-1", "serving": "paris"}]
    assert again.document["run"] is None
    assert len(list((operator.state / "runs").iterdir())) == 1


def test_a_dry_run_changes_nothing_and_tells_the_very_calls(lab: Lab, operator: Operator, tmp_path: Path) -> None:
    before = state_of(lab)

    with recorded(lab, tmp_path / "recorded") as (settings, recorders):
        told = Operator(lab, operator.state, settings)
        dry = told.run("swapover", "--to", "paris", "--dry-run")
        changes = [recorder.changes for recorder in recorders.values()]
        assert dry.code == 0
        assert changes == [[], []]
        assert state_of(lab) == before
        assert not operator.state.exists()

        done = told.run("swapover", "--to", "paris", "--yes")
        sent = [seen for recorder in recorders.values() for seen in recorder.changes]

    planned = [call for step in dry.document["data"]["plan"]["steps"] for call in step["calls"]]
    certain = [call for call in planned if call["when"] is None]
    executed = told.calls()
    assert done.code == 0
    assert [call for call in executed if call["when"] is None] == certain
    assert all(call in planned for call in executed)
    assert sorted((seen.bean, seen.operation) for seen in sent) == sorted(
        (call["bean"], call["operation"]) for call in executed
    )


def test_odd_queue_names_move_and_print_unharmed(lab: Lab, operator: Operator) -> None:
    names = ('say "hello"', "a,b=c", "$price", "<b>&amp;", "two words", "Bestellungen für Köln", "who?")
    for name in names:
        lab.create_queue(name)
        send(lab, "london", name, 3)

    ended = operator.run("swapover", "--to", "paris", "--yes")

    assert ended.code == 0, ended.document
    assert {name: lab.admin("paris").depth(name) for name in names} == dict.fromkeys(names, 3)
    about = [call["about"] for call in operator.calls()]
    assert all(f"pause {name} at london" in about for name in names)
    shown = operator.run("runs", "show")
    assert all(f"resume {name} at london" in [call["about"] for call in operator.calls()] for name in names)
    assert shown.code == 0


def test_the_probe_stays_at_its_site_and_leaves_nothing(lab: Lab, operator: Operator) -> None:
    ended = operator.run("swapover", "--to", "paris", "--yes")

    assert ended.code == 0
    probes = [entry for entry in operator.journal() if entry["step"] == "11-probe" and entry["outcome"] == "succeeded"]
    assert len(probes) == 1
    for site in ("london", "paris"):
        assert not [name for name in lab.admin(site).depths() if name.startswith("dr-ctl.probe.")]


def test_pauses_by_others_are_left_alone(lab: Lab, operator: Operator) -> None:
    on_queue(lab, "london", "orders.out", "pause(boolean)", True)

    ended = operator.run("swapover", "--to", "paris", "--yes")

    assert ended.code == 0
    after = state_of(lab)
    assert after["london"]["orders-1"]["paused"] == ["orders.out"]
    assert after["paris"]["orders-1"]["paused"] == []
    assert not [call for call in operator.calls() if call["about"].endswith("orders.out at london")]
