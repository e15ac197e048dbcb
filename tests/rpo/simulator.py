"""Histories with known truth: one queue and its mixed outflow, step by step, looked at as a monitor looks.

Arrivals come in bursts (a rate that wanders and jumps), consumers lag and stop, the link slows down and breaks, looks
are late when much is under way, brokers restart. Everything is first in, first out, so that counters alone tell the
truth at every step: of A sent, K consumed and S shipped messages those above max(S, K) are lost, and of the consumed
and shipped ones those whose acknowledgement is still here come twice.

Not modelled: several queues in one outflow, priorities, filters and expiry (messages that leave out of order), messages
that are rolled back, paging, looks whose counters were not read at the same instant, clocks that jump.
"""

import math
import random
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from dr_ctl.rpo.history.row import Row

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


@dataclass
class Truth:
    """What was true at each step."""

    at_s: list[float] = field(default_factory=list)
    loss: list[int] = field(default_factory=list)
    duplicates: list[int] = field(default_factory=list)
    age_s: list[float] = field(default_factory=list)

    def quantile(self, metric: str, probability: float) -> float:
        values = sorted(getattr(self, metric))
        return float(values[min(len(values) - 1, math.ceil(probability * len(values)) - 1)])


def history(  # noqa: PLR0915 - one step of a life after the other
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
    chance = random.Random(f"{load.name} {seed}")
    truth, rows = Truth(), list[Row]()
    sent = consumed = shipped = acked = 0  # messages sent, consumed, shipped; acknowledgements shipped
    base_sent = base_consumed = base_put = base_out = start = 0
    outflow: deque[list[int]] = deque()  # [sends, acks] put in together
    depth = put = out = 0
    ends: list[int] = []  # how many were sent by the end of each step that sent any
    times: list[float] = []
    mood, consuming = 1.0, True
    next_look, outage_until = 0.0, -1.0
    steps = int(hours * 3600 / step_s)
    for number in range(steps):
        now = number * step_s
        if chance.random() < step_s / load.wander_s:
            mood = load.burst ** chance.uniform(-1, 1)
        if load.slow_consumer and chance.random() < step_s / 60:
            consuming = chance.random() < 0.6
        if chance.random() < step_s / load.outage_every_s:
            outage_until = now + chance.expovariate(1 / load.outage_s)
        if chance.random() < step_s / load.restart_every_s:
            # Counters begin anew; what lies in the queue and in the outflow shows in their depths alone.
            start, base_sent, base_consumed, base_put, base_out = start + 1, sent, consumed, put, out
        if now >= next_look:
            ts = EPOCH + timedelta(seconds=now)
            told = {"site": site, "ts": ts, "pair": pair, "start": str(start)}
            rows.append(Row(**told, kind="site", name="serving"))
            counted = {"added": put - base_put, "removed": out - base_out, "link": now >= outage_until}
            rows.append(Row(**told, kind="mixed", name="*", depth=depth, **counted))
            gone = consumed - base_consumed
            counted = {"depth": sent - consumed, "added": sent - base_sent, "removed": gone, "acked": gone}
            counted["oldest_ms"] = int(1000 * (now - times[bisect_right(ends, consumed)])) if sent > consumed else None
            rows.append(Row(**told, kind="queue", name="orders", **counted))
            next_look = now + every_s + min(load.stretch * depth, STRETCHED * every_s)
        _record(truth, now, sent, consumed, shipped, acked, ends, times)
        arrivals = _poisson(chance, load.rate * mood * step_s)
        backlog = sent - consumed
        done = min(backlog, _poisson(chance, 3 * load.rate * load.burst * step_s)) if consuming else 0
        if arrivals or done:
            outflow.append([arrivals, done])
            sent, consumed = sent + arrivals, consumed + done
            depth, put = depth + arrivals + done, put + arrivals + done
            if arrivals:
                ends.append(sent)
                times.append(now)
        room = 0 if now < outage_until else _poisson(chance, load.ship * step_s)
        while room and outflow:
            first = outflow[0]
            for kind in (0, 1):
                moved = min(first[kind], room)
                first[kind] -= moved
                room -= moved
                depth, out = depth - moved, out + moved
                shipped, acked = shipped + moved * (kind == 0), acked + moved * (kind == 1)
            if not any(first):
                outflow.popleft()
    return rows, truth


def _record(
    truth: Truth, now: float, sent: int, consumed: int, shipped: int, acked: int, ends: list[int], times: list[float]
) -> None:
    safe = max(shipped, consumed)
    truth.at_s.append(now)
    truth.loss.append(sent - safe)
    truth.duplicates.append(max(0, min(consumed, shipped) - acked))
    truth.age_s.append(now - times[bisect_right(ends, safe)] if sent > safe else 0.0)


def _poisson(chance: random.Random, mean: float) -> int:
    if mean > 30:
        return max(0, round(chance.gauss(mean, math.sqrt(mean))))
    limit, count, product = math.exp(-mean), 0, chance.random()
    while product > limit:
        count += 1
        product *= chance.random()
    return count
