"""Queues moved between two real brokers that diverts and bridges join; the ledger of message ids judges the moves."""

from __future__ import annotations

import os
from statistics import median

import pytest

from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.traffic import Load
from tests.broker.driving import Operator, until
from tests.topologies.bridges.by_hand import moved
from tests.topologies.bridges.real import OTHERS, QUEUES, assert_clean, fence_to_open, ids, longest_gap, now, shipped

pytestmark = [pytest.mark.broker, pytest.mark.deep]

RATE = 100 * len(QUEUES)


def test_one_queue_of_three_moves_there_and_back_and_the_others_go_on(bridges_lab: Lab, operator: Operator) -> None:
    took, gaps, bare = [], [], []
    with bridges_lab.load(RATE) as load:
        load.wait_for(RATE)
        alone = now()
        load.wait_for(10 * RATE, within_s=60)
        print(f"longest receive gap while nothing moves: {longest_gap(bridges_lab, QUEUES, alone):.3f} s")
        for move in range(10):
            began = now()
            ended = operator.run("swapover", "--to", ("paris", "london")[move % 2], "--queues", "FOO", "--yes")
            assert ended.code == 0, ended.told
            load.wait_for(load.counts().sent + RATE)
            took.append(fence_to_open(operator))
            gaps.append(longest_gap(bridges_lab, OTHERS, began))
            if move % 2:
                bare += [by_hand(bridges_lab, load, target) for target in ("paris", "london")]
        verdict = load.stop()
    until(lambda: shipped(bridges_lab, "london", "paris"), why="all ids are applied")

    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    print(f"fence to open: {listed(took)}, median {median(took):.3f} s")
    print(f"by hand: {listed(bare)}, median {median(bare):.3f} s; ratio {median(took) / median(bare):.2f}")
    print(f"longest receive gap of the other two: {listed(gaps)}, median {median(gaps):.3f} s")
    print(verdict.as_json())
    assert_clean(verdict)
    # Clients that a move interrupts wait in each of the ten; on a busy machine they do now and then.
    assert median(gaps) < 0.2
    assert ids(bridges_lab, "london") == ids(bridges_lab, "paris")


def by_hand(lab: Lab, load: Load, target: str) -> float:
    took = moved(lab, "FOO", target)
    load.wait_for(load.counts().sent + RATE)
    return took


def listed(seconds: list[float]) -> str:
    return ", ".join(f"{each:.3f}" for each in seconds)


def test_all_three_move_and_a_dry_run_tells_the_very_calls(bridges_lab: Lab, operator: Operator) -> None:
    with bridges_lab.load(RATE) as load:
        load.wait_for(RATE)
        for target in ("paris", "london"):
            dry = operator.run("swapover", "--to", target, "--dry-run")
            ended = operator.run("swapover", "--to", target, "--yes")
            load.wait_for(load.counts().sent + RATE)
            print(f"fence to open, all three to {target}: {fence_to_open(operator):.3f} s")

            assert (dry.code, ended.code) == (0, 0), ended.told
            planned = [call for step in dry.document["data"]["plan"]["steps"] for call in step["calls"]]
            done = operator.calls()
            certain = [call for call in planned if call["when"] is None]
            assert [call for call in done if call["when"] is None] == certain
            assert all(call in planned for call in done)
            assert {site.name: site.serves for site in bridges_lab.status().sites}[target] == QUEUES
        verdict = load.stop()

    assert_clean(verdict)
