"""Waits until little or nothing is under way between the sites; a stopped link is started."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.model import ExitCode, some
from dr_ctl.core.notation import duration
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Refused, StepContext
from dr_ctl.engine.waiting import until
from dr_ctl.topologies.common.access import Access
from dr_ctl.topologies.common.figures import evidence, total
from dr_ctl.topologies.common.tools import Tools
from dr_ctl.topologies.common.view import Broker

AT_MOST: Final = 3
V = TypeVar("V", bound=Broker)
V_contra = TypeVar("V_contra", bound=Broker, contravariant=True)
Views = dict[tuple[str, str], V | BrokerError]


class Direction(Protocol[V_contra]):
    """The messages under way from one broker to its peer."""

    @property
    def here(self) -> Access[Any]: ...

    @property
    def there(self) -> Access[Any]: ...

    def left(self, here: V_contra, there: V_contra) -> int | None:
        """The number under way, or None if unread."""

    def why(self, here: V_contra, there: V_contra) -> list[str]:
        """The reasons why the wait cannot end."""

    def mends(self, here: V_contra) -> list[Call]:
        """The calls that are due now, because a link is stopped or hangs."""


@dataclass(frozen=True, slots=True)
class _Reading(Generic[V]):
    """A reading of all directions: the number that is left, the reasons for it, and what makes the wait pointless."""

    views: Views[V]
    left: int | None
    why: list[str]
    broken: str | None = None


class Wait(Generic[V]):
    """A wait for several directions at once. `about` says on what, `small` how much may be left."""

    def __init__(
        self, tools: Tools[V], directions: Sequence[Direction[V]], context: StepContext, about: str, small: int = 0
    ) -> None:
        self._tools, self._directions, self._context, self._about, self._small = (
            tools,
            directions,
            context,
            about,
            small,
        )
        self.began = self._moved_at = context.monotonic()
        self.mended = 0
        self.first: int | None = None
        self.last: int | None = None

    def until(
        self,
        poll_s: float,
        *,
        within_s: float | None,
        stall_s: float,
        guard: Callable[[Views[V]], str | None] | None = None,
        calms: int = 2,
    ) -> Refused | None:
        """Poll until at most `small` is left, `calms` times in a row. Gives a refusal if not; `guard` says why to give
        up."""
        waited = until(
            self._context,
            lambda: self._noted(guard),
            holds=lambda now: now.broken is None and now.left is not None and now.left <= self._small and not now.why,
            hopeless=lambda now: now.broken is not None or self._still_s() > stall_s,
            within_s=self.began + within_s - self._context.monotonic() if within_s is not None else None,
            poll_s=poll_s,
            stable_for=calms,
            meanwhile=lambda now: self._mend(now.views),
        )
        if waited.held:
            return None
        now = waited.look
        return Refused(now.broken) if now.broken is not None else self._late(now.left, now.why, stall_s)

    def _noted(self, guard: Callable[[Views[V]], str | None] | None) -> _Reading[V]:
        views = self._read()
        left, why = self._left(views)
        if guard is not None and (broken := guard(views)) is not None:
            return _Reading(views, left, why, broken)
        self._note(left)
        self._context.waiting(self._about, left, next(iter(why), None))
        shipping = [(site, each if isinstance(each, BrokerError) else each.link) for (site, _), each in views.items()]
        self._context.sample(evidence(shipping))
        return _Reading(views, left, why)

    def _read(self) -> Views[V]:
        every = list(
            {(each.site, each.pair): each for way in self._directions for each in (way.here, way.there)}.values()
        )
        answers = self._tools.observer.answers(every)
        return {(access.site, access.pair): each for access, each in zip(every, answers, strict=True)}

    def _left(self, views: Views[V]) -> tuple[int | None, list[str]]:
        left: list[int | None] = []
        why: list[str] = []
        for way in self._directions:
            here, there = views[way.here.site, way.here.pair], views[way.there.site, way.there.pair]
            if not isinstance(here, BrokerError) and not isinstance(there, BrokerError):
                left.append(way.left(here, there))
                why += way.why(here, there)
            else:
                left.append(None)
                why += [str(each) for each in (here, there) if isinstance(each, BrokerError)]
        return total(left), list(dict.fromkeys(why))

    def _note(self, left: int | None) -> None:
        if left is not None and left != self.last:
            self._moved_at = self._context.monotonic()
            self.first = left if self.first is None else self.first
            self.last = left

    def _still_s(self) -> float:
        return self._context.monotonic() - self._moved_at

    def _late(self, left: int | None, why: Sequence[str], stall_s: float) -> Refused:
        took, still = self._context.monotonic() - self.began, self._still_s()
        under_way = f"{left if left is not None else 'an unknown number'} under way"
        reason = some(why) or (f"nothing moved for {duration(still)}" if still > stall_s else "they move too slowly")
        return Refused(f"not drained after {duration(took)}: {under_way}; {reason}", code=ExitCode.DRAIN_TIMEOUT)

    def _mend(self, views: Views[V]) -> None:
        """Start stopped links. A started link connects by itself."""
        for way in self._directions:
            here = views[way.here.site, way.here.pair]
            if isinstance(here, BrokerError):
                continue
            if self.mended < AT_MOST and (calls := way.mends(here)):
                self.mended += 1
                self._context.notice(f"{way.here.site}: {len(calls)} call(s) to start what ships from there")
                self._tools.change(calls, self._context)
