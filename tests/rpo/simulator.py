"""Histories with known truth: traffic and the outflows of its link, step by step, looked at as a monitor looks.

Arrivals come in bursts (a rate that wanders and jumps), consumers lag and stop, the link slows down and breaks, looks
are late when much is under way, brokers restart. Everything is first in, first out, so that counters alone tell the
truth at every step: of A sent, K consumed and S shipped messages those above max(S, K) are lost, and of the consumed
and shipped ones those whose acknowledgement is still here come twice.

Not modelled: priorities, filters and expiry (messages that leave out of order), messages that are rolled back, paging,
looks whose counters were not read at the same instant, clocks that jump.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

import numpy as np
import numpy.typing as npt

from dr_ctl.rpo.core.arrays import Ints, Rows
from dr_ctl.rpo.history.row import Row

Link = Literal["mirror", "brokersync", "continuity", "bridges"]
EPOCH = datetime(2026, 3, 1, tzinfo=UTC)
STEP_S = 0.5


@dataclass(frozen=True)
class Load:
    """One kind of life. Rates a second; `wander_s` is how long a rate keeps its mood."""

    name: str
    rate: float
    burst: float
    wander_s: float
    ship: float
    slow_consumer: bool = False
    outage_every_s: float = math.inf
    outage_s: float = 0.0
    restart_every_s: float = math.inf
    stretch: float = 0.0


LOADS = (
    Load("steady", 20, 1.2, 60, 400),
    Load("bursts", 10, 12, 40, 60, slow_consumer=True),
    Load("busy", 40, 1.6, 90, 85, slow_consumer=True),
    Load("outages", 15, 1.5, 60, 200, slow_consumer=True, outage_every_s=900, outage_s=120),
    Load("long outages", 12, 2, 120, 300, slow_consumer=True, outage_every_s=2400, outage_s=400),
    Load("stretched", 20, 4, 50, 80, slow_consumer=True, stretch=0.01, outage_every_s=1500, outage_s=120),
    Load("restarts", 15, 2, 60, 120, slow_consumer=True, restart_every_s=2400, outage_every_s=1200, outage_s=90),
)
EVERY_S = 5.0
STRETCHED = 3


@dataclass(frozen=True)
class Truth(Rows):
    at_s: npt.NDArray[np.float64]
    loss: Ints
    duplicates: Ints
    age_s: npt.NDArray[np.float64]

    def quantile(self, metric: str, probability: float) -> float:
        values = np.sort(getattr(self, metric))
        return float(values[min(len(values) - 1, math.ceil(probability * len(values)) - 1)])


@dataclass
class Traffic:
    """One pair: by step and queue what was sent (`sent`) and acknowledged (`acked`) so far, and what its outflows hold.

    Within a step messages come before acknowledgements, in the order of the queues.
    """

    sent: Ints
    acked: Ints
    step_s: float
    flows: list[tuple[str, str, list[tuple[str, int]]]] = field(default_factory=list)
    shipped: list[Ints] = field(default_factory=list)

    @classmethod
    def of(cls, link: Link, sends: Ints, able: Ints, ships: Ints, step_s: float) -> Traffic:
        """`sends`, `able`: sent and at most acknowledged in each step by queue; `ships`: at most shipped in each
        step."""
        sent = np.cumsum(sends, 0)
        made = cls(sent, _served(sent, able), step_s)
        queues = range(sent.shape[1])
        if link == "mirror":
            made.flows = [("mixed", "*", [(of, queue) for of in ("sent", "acked") for queue in queues])]
        else:
            made.flows = [("mirror", f"q{queue}", [("sent", queue)]) for queue in queues]
            acks = [("acks", f"q{queue}", [("acked", queue)]) for queue in queues]
            made.flows += [("acks", "*", [("acked", queue) for queue in queues])] if link == "bridges" else acks
        made.shipped = [_served(made.put(parts)[:, None], ships[:, None])[:, 0] for _, _, parts in made.flows]
        return made

    def put(self, parts: list[tuple[str, int]]) -> Ints:
        total: Ints = np.sum([getattr(self, of)[:, queue] for of, queue in parts], axis=0)
        return total

    def shipped_of(self, steps: Ints) -> tuple[Ints, Ints]:
        """By step and queue: how many messages and how many acknowledgements are shipped at the end of it."""
        found = {of: np.zeros((len(steps), self.sent.shape[1]), np.int64) for of in ("sent", "acked")}
        for (_, _, parts), shipped in zip(self.flows, self.shipped, strict=True):
            put = self.put(parts)
            full = np.searchsorted(put, shipped[steps], "right")  # so many steps of which all is shipped
            left = shipped[steps] - np.append(0, put)[full]
            for of, queue in parts:
                counter = np.append(0, getattr(self, of)[:, queue])
                taken = np.minimum(left, counter[np.minimum(full + 1, len(put))] - counter[full])
                left -= taken
                found[of][:, queue] = counter[full] + taken
        return found["sent"], found["acked"]

    def truth(self, steps: Ints) -> tuple[Ints, Ints, npt.NDArray[np.float64]]:
        """By step and queue lost and doubled, and by step the age of the oldest lost message in seconds."""
        sent, acked = self.shipped_of(steps)
        safe = np.maximum(sent, self.acked[steps])
        lost = np.maximum(0, self.sent[steps] - safe)
        duplicates = np.maximum(0, np.minimum(self.acked[steps], sent) - acked)
        ages = [
            np.where(lost[:, queue], steps - np.searchsorted(self.sent[:, queue], safe[:, queue] + 1), 0)
            for queue in range(lost.shape[1])
        ]
        return lost, duplicates, np.max(ages, axis=0) * self.step_s


def _served(came: Ints, able: Ints) -> Ints:
    could = np.cumsum(np.broadcast_to(able, came.shape), 0)
    served: Ints = np.minimum(could, could + np.minimum.accumulate(came - could, axis=0))
    return served


def _lived(load: Load, seed: int, steps: int, step_s: float) -> tuple[Traffic, npt.NDArray[np.bool_], Ints]:
    """What was sent, consumed and shipped; when the link was away; and before how many steps the broker began anew."""
    dice, at = np.random.default_rng([LOADS.index(load), seed]), np.arange(steps)

    def since(every_s: float) -> Ints:
        """The step in which something began last that begins by chance; -1: it has not."""
        return np.maximum.accumulate(np.where(dice.random(steps) < step_s / every_s, at, -1))

    def of_step(begun: Ints, values: npt.NDArray[np.generic], before: float) -> npt.NDArray[np.generic]:
        return np.where(begun < 0, before, values[begun])

    mood = of_step(since(load.wander_s), load.burst ** dice.uniform(-1, 1, steps), 1.0)
    consuming = of_step(since(60 if load.slow_consumer else math.inf), dice.random(steps) < 0.6, 1.0)
    outages = dice.random(steps) < step_s / load.outage_every_s
    until = np.where(outages, at + dice.exponential(max(load.outage_s, 1) / step_s, steps), -1)
    is_away = at < np.maximum.accumulate(until)
    able = np.where(consuming, dice.poisson(3 * load.rate * load.burst * step_s, steps), 0)
    ships = np.where(is_away, 0, dice.poisson(load.ship * step_s, steps))
    sends = dice.poisson(load.rate * mood * step_s)
    return Traffic.of("mirror", sends[:, None], able[:, None], ships, step_s), is_away, since(load.restart_every_s)


def history(
    load: Load,
    seed: int,
    *,
    hours: float,
    pair: str,
    site: str = "london",
    every_s: float = EVERY_S,
    step_s: float = STEP_S,
) -> tuple[list[Row], Truth]:
    """Live through it: the rows that the monitor writes, and the truth."""
    steps = int(hours * 3600 / step_s)
    traffic, is_away, begun = _lived(load, seed, steps, step_s)
    rows, starts, next_s = list[Row](), np.unique(begun, return_inverse=True)[1], 0.0
    sent, acked, put, out = (
        traffic.sent[:, 0],
        traffic.acked[:, 0],
        traffic.put(traffic.flows[0][2]),
        traffic.shipped[0],
    )
    while (now := math.ceil(next_s / step_s)) < steps:
        base = begun[now]  # counters begin anew; what lies in queue and outflow shows in their depths alone
        told = {"site": site, "ts": EPOCH + timedelta(seconds=now * step_s), "pair": pair, "start": str(starts[now])}
        grown = {name: int(of[now] - (of[base] if base >= 0 else 0))
                 for name, of in (("sent", sent), ("acked", acked), ("put", put), ("out", out))}  # fmt: skip
        held, depth = int(sent[now] - acked[now]), int(put[now] - out[now])
        oldest_ms = int(1000 * step_s * (now - np.searchsorted(sent, acked[now] + 1))) if held else None
        counted = {"added": grown["put"], "removed": grown["out"], "link": not is_away[now]}
        of_queue = {"added": grown["sent"], "removed": grown["acked"], "acked": grown["acked"], "oldest_ms": oldest_ms}
        rows += [
            Row(**told, kind="site", name="serving"),
            Row(**told, kind="mixed", name="*", depth=depth, **counted),
            Row(**told, kind="queue", name="orders", depth=held, **of_queue),
        ]
        next_s = now * step_s + every_s + min(load.stretch * depth, STRETCHED * every_s)
    lost, duplicates, age_s = traffic.truth(np.arange(steps))
    return rows, Truth(np.arange(steps) * step_s, lost[:, 0], duplicates[:, 0], age_s)
