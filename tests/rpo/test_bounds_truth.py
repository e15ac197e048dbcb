"""A site that knows every message dies at a random moment: what it took with it is never above the bound."""

from __future__ import annotations

import copy
import itertools
import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest

from dr_ctl.rpo.bounds.bounds import bounds
from dr_ctl.rpo.history.files import write
from dr_ctl.rpo.history.row import Row
from tests.rpo.fifo import FifoSite, Style, at

PAIR = "orders-1"


class Limited:
    """Lets a counter grow no faster than the fastest interval between two looks."""

    def __init__(self, looks: list[list[Row]]) -> None:
        self.rates: dict[tuple[str, str, str], float] = Counter()
        self.done: Counter[tuple[str, str, str]] = Counter()
        for before, after in itertools.pairwise(looks):
            for one, other in zip(before, after, strict=True):
                passed = (other.ts - one.ts) / timedelta(seconds=1)
                for counter in ("added", "acked"):
                    grown = (getattr(other, counter) or 0) - (getattr(one, counter) or 0)
                    if one.start == other.start:
                        key = (one.kind, one.name, counter)
                        self.rates[key] = max(self.rates[key], grown / passed)

    def allows(self, keys: list[tuple[str, str, str]], elapsed: float) -> bool:
        if any(self.done[key] + 1 > self.rates[key] * elapsed for key in keys):
            return False
        self.done.update(keys)
        return True


def role(name: str, like: Row) -> Row:
    return Row(site="london", ts=like.ts, pair=PAIR, kind="site", name=name, took_ms=0)


def truth(site: FifoSite) -> tuple[Counter[str], Counter[str]]:
    lost = Counter(m.queue for m in site.messages if not m.shipped and not m.consumed)
    return lost, Counter(m.queue for m in site.messages if m.consumed and m.shipped and not m.ack_shipped)


def step(site: FifoSite, dice: random.Random, limited: Limited | None, elapsed: float) -> None:
    """One second of a site's life; after the last look no faster than before."""
    for _ in range(dice.randrange(12)):
        name = dice.choice(site.queues)
        acts = dice.random() < 0.5
        if acts and not site.waiting[name]:
            continue
        kind, flow = site._outflow("ack" if acts else "send", name)
        keys = [(kind, flow, "added"), ("queue", name, "acked" if acts else "added")]
        if limited is None or limited.allows(keys, elapsed):
            site.consume(name) if acts else site.send(name, 0)
    for each in list(site.outflows):
        for _ in range(dice.randrange(9)):
            site.ship(each)


@pytest.mark.parametrize("style", get_args(Style))
@pytest.mark.parametrize("seed", range(40))
def test_the_truth_is_never_above_the_bound(tmp_path: Path, style: Style, seed: int) -> None:
    dice = random.Random(seed)
    site = FifoSite(PAIR, style, ("orders", "audit", "bills"))
    every, lives, unseen = dice.randint(1, 5), dice.randint(30, 80), dice.randint(0, 12)
    looks: list[list[Row]] = []
    for second in range(lives):
        step(site, dice, None, 0)
        if dice.random() < 0.03:
            site.restart()
        if second % every == 0:
            looks.append(site.look(second))
            looked_at, at_the_look = second, copy.deepcopy(site)
    rows = [row for each in looks for row in (*each, role("serving", each[0]))]
    site, limited = at_the_look, Limited(looks)  # on from the last look, on its own way
    for second in range(1, unseen + 1):
        step(site, dice, limited, second)
    died = looked_at + unseen
    write([*rows, role("down", replace(rows[0], ts=at(died + 1)))] if seed % 2 else rows, tmp_path)

    found = bounds(tmp_path, site="london", now=at(died + dice.randint(0, 5) + (3600 if seed % 2 else 0)))

    lost, duplicates = truth(site)
    assert found.lost.at_most is not None
    assert found.duplicates.at_most is not None
    assert lost.total() <= found.lost.at_most
    assert duplicates.total() <= found.duplicates.at_most
    for each in found.queues:
        assert each.lost is not None
        assert each.duplicates is not None
        assert lost[each.name] <= each.lost
        assert duplicates[each.name] <= each.duplicates
