"""Waits until few or no messages are under way between the sites. Links that are stopped or hang are restarted."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import ExitCode, brief, total
from dr_ctl.core.notation import duration, if_known
from dr_ctl.engine.plan import Call, PlannedStep
from dr_ctl.engine.ports import Done, Failed, Move, Outcome, StepContext
from dr_ctl.topologies.common.session import EVERYTHING, ReadScope, Session
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker, Queue, count_text, link_figures

MAX_REPAIRS: Final = 3  # of a broker, in one wait
SMALL_OUTFLOW: Final = 500  # messages: a drain of so many is short
R = TypeVar("R", bound=Broker)
Readings = Mapping[tuple[str, str], R | BrokerError]


class Barrier:
    """Decides by counters whether the messages that were in some queues at the beginning have left them, and also the
    peer's queues that received them. Later messages do not count: under load no queue is ever seen empty. After a
    restart of a broker the count begins again."""

    def __init__(self) -> None:
        self._starts: tuple[str, ...] = ()
        self._goals: dict[str, int] = {}

    def remaining(
        self, view: Broker, queues: Sequence[Queue], peer: Broker | None = None, arrived: Sequence[Queue] = ()
    ) -> int | None:
        """Count those of the messages that remain; return None if the counters are unknown."""
        starts = tuple(broker.start for broker in (view, peer) if broker is not None)
        if self._starts != starts:
            self._starts, self._goals = starts, {}
        if (to_ship := self._to_go(queues)) != 0:
            return total((to_ship, *(queue.known_depth for queue in arrived)))
        return self._to_go(arrived)

    def _to_go(self, queues: Sequence[Queue]) -> int | None:
        if not all(queue.depth_known for queue in queues):
            return None
        goals = [self._goals.setdefault(queue.bean, queue.removed + queue.depth) for queue in queues]
        return sum(max(0, min(queue.depth, goal - queue.removed)) for queue, goal in zip(queues, goals, strict=True))


class Direction(ABC, Generic[R]):
    """A direction of the replication: `remaining` counts the messages under way, `reasons` explain why the wait
    lasts."""

    repairing = ""
    """What people are told while a repair is made."""
    refused: Failed | None = None
    """The reason why the wait is pointless, as the newest reading shows."""

    def __init__(self, local: Session[Any], peer: Session[Any]) -> None:
        self.local, self.remote = local, peer

    @abstractmethod
    def remaining(self, view: R, peer: R) -> int | None: ...

    def reasons(self, _view: R, _peer: R) -> list[str]:
        return []

    def repair_calls(self, _view: R, _peer: R | BrokerError) -> list[Call]:
        return []


@dataclass(frozen=True, slots=True)
class _Reading(Generic[R]):
    """A reading of all directions: the remaining number, the reasons for it, and what makes the wait pointless."""

    readings: Readings[R]
    left: int | None
    why: list[str]
    broken: Failed | None = None


@dataclass
class Wait(Generic[R]):
    """A wait for several directions at once. `subject` is the title of the wait, `small` is how much may remain,
    `counts` says what is counted. With `falls_only` only a smaller count is progress, for clients that add messages.
    A broker has `timeout_s` to answer, which doubles with each missing answer."""

    tools: Tools[Any]
    directions: Sequence[Direction[R]]
    context: StepContext
    subject: str
    small: int = 0
    counts: str = field(default="", kw_only=True)
    scope: ReadScope = field(default=EVERYTHING, kw_only=True)
    falls_only: bool = field(default=False, kw_only=True)
    timeout_s: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.began = self._progress_at = self.context.monotonic()
        self._repairs: dict[tuple[str, str], int] = {}
        self.first: int | None = None
        self.last: int | None = None
        self.why: list[str] = []

    @property
    def repairs(self) -> int:
        return sum(self._repairs.values())

    def until(
        self,
        poll_s: float,
        limits: Mapping[str, float],
        opened: Callable[[R], Sequence[str]] = lambda _: (),
        stable_for: int = 2,
    ) -> Failed | None:
        """Poll until at most `small` remain, `stable_for` times in a row. Return a failure when the step's limits are
        over, and at once if `opened` names listeners that let clients in."""
        within_s, stall_s = limits.get("within"), limits.get("stall", limits.get("within", 0.0))
        waited = self.context.until(
            lambda: self.read(opened),
            holds=lambda now: now.broken is None and now.left is not None and now.left <= self.small and not now.why,
            hopeless=lambda now: now.broken is not None or self._still_s() > stall_s,
            within_s=self.began + within_s - self.context.monotonic() if within_s is not None else None,
            poll_s=poll_s,
            stable_for=stable_for,
            meanwhile=lambda now: self._repair(now.readings),
        )
        if waited.satisfied:
            return None
        now = waited.reading
        return now.broken or self._late(now.left, now.why, stall_s)

    def caught_up(self, limits: Mapping[str, float], grow: str, left: str) -> Outcome:
        """Wait until a drain would be short. `grow` is the failure's text if clients are faster than the link."""
        failed = self.until(self.tools.timeouts.link_poll_s, limits)
        if failed is None:
            return Done(f"{if_known(self.last)} {left}", {"under_way": self.last, "started": self.repairs})
        if self.first is not None and self.last is not None and self.last >= self.first > self.small:
            return Failed(f"{grow} while clients work: {self.first} {left}, then {self.last}")
        return Failed(failed.text)

    def read(self, opened: Callable[[R], Sequence[str]] = lambda _: ()) -> _Reading[R]:
        brokers = {
            (session.site, session.pair): session
            for direction in self.directions
            for session in (direction.local, direction.remote)
        }
        answers: Sequence[Any] = self.tools.observer.answers(brokers.values(), self.scope, self.timeout_s)
        if self.timeout_s is not None and any(isinstance(answer, BrokerError) for answer in answers):
            self.timeout_s *= 2
        readings: Readings[R] = dict(zip(brokers, answers, strict=True))
        left, self.why = self._left(readings)
        for (site, _), reading in readings.items():
            if not isinstance(reading, BrokerError) and (names := opened(reading)):
                broken = f"{site} was opened to clients during the drain: {brief(names)}"
                return _Reading(readings, left, self.why, Failed(broken))
        if left is not None and (self.last is None or (left < self.last if self.falls_only else left != self.last)):
            self._progress_at, self.last = self.context.monotonic(), left
            self.first = left if self.first is None else self.first
        self.context.report_waiting(self.subject, left, next(iter(self.why), None))
        shown = ((key, error if isinstance(error, BrokerError) else error.link) for key, error in readings.items())
        self.context.sample(link_figures((site, link) for (site, _), link in shown))
        refused = next((direction.refused for direction in self.directions if direction.refused is not None), None)
        return _Reading(readings, left, self.why, refused)

    def _left(self, readings: Readings[R]) -> tuple[int | None, list[str]]:
        left: list[int | None] = []
        why: list[str] = []
        several = len({direction.local.pair for direction in self.directions}) > 1
        for direction in self.directions:
            local, remote = direction.local, direction.remote
            named = f"{local.pair}: " if several else ""
            view, peer = readings[local.site, local.pair], readings[remote.site, remote.pair]
            if not isinstance(view, BrokerError) and not isinstance(peer, BrokerError):
                left.append(direction.remaining(view, peer))
                why += [f"{named}{reason}" for reason in direction.reasons(view, peer)]
            else:
                left.append(None)
                silent = [(at.site, answer) for at, answer in ((local, view), (remote, peer))]
                why += [f"{named}{site} does not answer: {e}" for site, e in silent if isinstance(e, BrokerError)]
        return total(left), list(dict.fromkeys(why))

    def _still_s(self) -> float:
        return self.context.monotonic() - self._progress_at

    def _late(self, left: int | None, why: Sequence[str], stall_s: float) -> Failed:
        took, idle_s = self.context.monotonic() - self.began, self._still_s()
        counts = self.counts or (" message(s)" if left is None else "")
        under_way = f"{count_text(left)}{counts} under way"
        reason = brief(why) or (f"nothing moved for {duration(idle_s)}" if idle_s > stall_s else "they move too slowly")
        return Failed(f"not drained after {duration(took)}: {under_way}; {reason}", code=ExitCode.DRAIN_TIMEOUT)

    def _repair(self, readings: Readings[R]) -> None:
        """Start links that are stopped or hang. A started link connects by itself."""
        for direction in self.directions:
            key = direction.local.site, direction.local.pair
            view, peer = readings[key], readings[direction.remote.site, direction.remote.pair]
            if isinstance(view, BrokerError) or self._repairs.get(key, 0) >= MAX_REPAIRS:
                continue
            if calls := direction.repair_calls(view, peer):
                self._repairs[key] = self._repairs.get(key, 0) + 1
                self.context.notice(f"{direction.local.site}: {direction.repairing}")
                self.tools.change(calls, self.context)


def attached(
    tools: Tools[Any],
    step: PlannedStep,
    move: Move,
    context: StepContext,
    link: str,
    detached: Callable[[], Mapping[str, str]],
) -> Outcome:
    """Wait until all links of the source are attached. `detached` maps the names of the others to the reason."""

    def why(names: Mapping[str, str]) -> str:
        return brief([reason for reason in names.values() if reason])

    waited = context.until(
        detached,
        holds=lambda names: not names,
        within_s=step.limits["within"],
        poll_s=tools.timeouts.link_poll_s,
        meanwhile=lambda names: context.report_waiting(
            f"{link} of {move.source} attaches", len(names), why(names) or None
        ),
    )
    if waited.satisfied:
        return Done(f"{link} of {move.source} is attached")
    reason = f": {reasons}" if (reasons := why(waited.reading)) else ""
    within, name = duration(step.limits["within"]), f"{link} of {brief([*waited.reading])}"
    return Failed.of(found("DR-LINK-008", link=name, within=within, why=reason, target=move.target))
