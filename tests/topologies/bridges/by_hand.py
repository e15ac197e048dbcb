"""One queue moved by a bare script: the same calls and the same waits as a swapover, and not one check, look or proof
more. What a swapover takes is measured against it."""

from __future__ import annotations

import time

from dr_ctl_lab.lab.artemis.bridges import IDS, BridgesAdmin, buffer
from dr_ctl_lab.lab.lab import Lab
from tests.broker.driving import until
from tests.topologies.bridges.real import admin

STABLE = 3
FIGURES = ("Name", "MessageCount", "DeliveringCount", "ConsumerCount", "MessagesAdded", "MessagesAcknowledged")


def moved(lab: Lab, queue: str, target: str) -> float:
    """Move it; seconds from the first call that keeps clients out to the last that lets them in."""
    source = lab.state.other(target).name
    here, there = admin(lab, source), admin(lab, target)
    began = time.monotonic()
    here.close_queue(queue)
    until(lambda: _idle(_figures(here)[queue]), why="its clients are gone")
    messages, ids = buffer(target, queue), buffer(target, IDS)
    noted = _figures(here)[ids]["MessagesAdded"]
    until(lambda: (told := _figures(here))[ids]["MessagesAcknowledged"] >= noted and not told[messages]["MessageCount"])
    arrived = _figures(there)[IDS]["MessagesAdded"]
    until(lambda: _figures(there)[IDS]["MessagesAcknowledged"] >= arrived, why="the ids are applied")
    for _ in range(STABLE):
        assert not _figures(here)[messages]["MessageCount"]
    there.open_queue(queue)
    return time.monotonic() - began


def _figures(site: BridgesAdmin) -> dict[str, dict[str, int]]:
    return {one["Name"]: one for one in site._queues(*FIGURES)}


def _idle(told: dict[str, int]) -> bool:
    return not (told["DeliveringCount"] or told["ConsumerCount"])
