"""The settings of a move: its queues, their traffic between readings, and the time limits. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dr_ctl.core.notation import matches
from dr_ctl.core.timeouts import Timeouts
from dr_ctl.engine.ports import Move
from dr_ctl.engine.runbook import RunbookStep
from dr_ctl.settings.model import Drain, Queues
from dr_ctl.topologies.common.calls import BROKERS, MQTT_RETAINED, OURS
from dr_ctl.topologies.common.view import Broker, Queue


def selected(view: Broker, queues: Queues) -> dict[str, Queue]:
    return {name: queue for name, queue in view.business.items() if selects(queues, name)}


def selects(queues: Queues, name: str) -> bool:
    return matches(queues.include, name) and not matches(queues.exclude, name)


def selects_all(queues: Queues, prefix: str) -> bool:
    """Say whether every queue with this prefix is a client's and selected by the settings, whoever creates it."""
    excluded = [re.split(r"[*#]", pattern)[0] for pattern in queues.exclude]
    if any(prefix.startswith(head) or head.startswith(prefix) for head in (*BROKERS, *OURS, MQTT_RETAINED, *excluded)):
        return False
    # `orders.#` matches all names that begin with `orders.`, where no other word of it is a pattern.
    included = [
        pattern[:-1] for pattern in queues.include if pattern == "#" or (pattern.endswith(".#") and "*" not in pattern)
    ]
    return any("#" not in head and prefix.startswith(head) for head in included)


@dataclass(frozen=True, slots=True)
class Counts:
    """The depths of a queue at two brokers, and the queue `at` each. An absent queue counts as empty. The source has
    `to_ship` copies of its messages still to ship."""

    queue: str
    source: int
    target: int
    at: tuple[Queue | None, Queue | None]
    to_ship: int = 0

    def text(self, source: str, target: str) -> str:
        return f"{self.queue}: {self.source} at {source}, {self.target} at {target}"

    @property
    def difference(self) -> int:
        return self.target - self.source

    @property
    def size(self) -> int:
        return abs(self.difference)

    @property
    def lacks(self) -> int:
        return max(0, self.source - self.target - self.to_ship)


def at_both(source: Broker, target: Broker, queues: Queues) -> Iterator[Counts]:
    """Count every selected queue of two brokers, by name."""
    at_source, at_target = selected(source, queues), selected(target, queues)
    for name in sorted(at_source.keys() | at_target.keys()):
        queues_at = at_source.get(name), at_target.get(name)
        source_depth, target_depth = (queue.depth if queue is not None else 0 for queue in queues_at)
        yield Counts(name, source_depth, target_depth, queues_at)


def not_accepted(counted: Iterable[Counts], move: Move) -> list[Counts]:
    """Return the differing counts that were not accepted at exactly their difference."""
    accepted = move.spec.accept_difference
    return [counts for counts in counted if counts.difference and accepted.get(counts.queue) != counts.size]


def depth_text(view: Broker) -> str:
    return f"{view.site} {sum(queue.depth for queue in view.business.values())} message(s)"


def traffic(readings: Iterable[tuple[Broker, Broker]]) -> dict[str, int]:
    """Count how much each queue changed between two readings of brokers, at the site with the larger change."""
    result: dict[str, int] = {}
    for before, after in readings:
        for name, queue in after.business.items() if before.start == after.start else ():
            if (was := before.business.get(name)) is not None:
                change = (queue.added - was.added) + (queue.removed - was.removed)
                result[name] = max(result.get(name, 0), change)
    return result


@dataclass(frozen=True, slots=True)
class Rules:
    queues: Queues
    drain: Drain
    timeouts: Timeouts

    def within(self, move: Move) -> float:
        return move.spec.timeout_s if move.spec.timeout_s is not None else self.drain.timeout

    def catching_up(self, step: RunbookStep, _move: Move) -> dict[str, float]:
        return {"within": step.limits.get("within", self.timeouts.catch_up_s)}

    def draining(self, _step: RunbookStep, move: Move) -> dict[str, float]:
        return {"within": self.within(move), "stall": self.drain.stall}

    def while_moving(self, _step: RunbookStep, move: Move) -> dict[str, float]:
        """Return the limits of a wait that lasts as long as something moves, unless the command limits the time."""
        asked = {} if move.spec.timeout_s is None else {"within": move.spec.timeout_s}
        return {**asked, "stall": self.drain.stall}
