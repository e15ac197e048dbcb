"""Which effects of calls are seen, and which are left. Pure."""

from collections.abc import Iterable, Sequence

from dr_ctl.core.model import some
from dr_ctl.engine.goals import Goal
from dr_ctl.engine.outcome import Refused
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.common.view import Broker


def to_undo(calls: Sequence[Call], views: Sequence[Broker]) -> list[Call]:
    """Choose the calls that undo something: effects that are not seen to hold, and roles that were kept out. A restart
    may let these roles in again, so the present flag proves nothing."""
    return [call for call in calls if call.goal is Goal.SHUT_OUT or not holds(call, views)]


def left_of(calls: Sequence[Call], views: Sequence[Broker]) -> list[str]:
    """The effects of these calls that are not seen to hold, in words."""
    return [call.about for call in calls if not holds(call, views)]


def holds(call: Call, views: Iterable[Broker]) -> bool:
    """Say whether a call's effect was seen at its broker; raises KeyError for a call whose effect has no look."""
    return next(each for each in views if (each.site, each.pair) == (call.site, call.unit)).holds(call)


def still(calls: Sequence[Call], views: Sequence[Broker]) -> Refused | None:
    """The refusal that names the effects that are not seen to hold; returns None where every effect holds."""
    left = left_of(calls, views)
    return Refused(f"has not come true: {some(left)}") if left else None
