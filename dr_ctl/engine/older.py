"""The goal of a call that the previous version wrote down: its plans and journals have only the request.

No other module may derive a goal from the operation. Remove this module once no run of that version can be open.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dr_ctl.engine.goals import Goal

# By the operation without its signature. A door and a bridge are started by the same one.
_GOALS: Final[Mapping[str, Goal]] = {
    "start": Goal.OPEN,
    "stop": Goal.CLOSE,
    "activateSite": Goal.OPEN,
    "deactivateSite": Goal.CLOSE,
    "addSecuritySettings": Goal.SHUT_OUT,
    "removeSecuritySettings": Goal.ADMIT,
    "reloadConfigurationFile": Goal.ADMIT,
    "pause": Goal.PAUSE,
    "resume": Goal.RESUME,
    "createQueue": Goal.WRITE,
    "destroyQueue": Goal.STRIKE,
    "startBrokerConnection": Goal.LINK_UP,
    "stopBrokerConnection": Goal.LINK_DOWN,
    "moveMessage": Goal.MOVE,
    "moveMessages": Goal.MOVE,
    "removeMessages": Goal.REMOVE,
    "removeAllMessages": Goal.REMOVE,
    "run": Goal.HOOK,
}
_BRIDGES: Final = {Goal.OPEN: Goal.LINK_UP, Goal.CLOSE: Goal.LINK_DOWN}
_ARGUMENT: Final = (Goal.SHUT_OUT, Goal.ADMIT, Goal.STRIKE, Goal.LINK_UP, Goal.LINK_DOWN)
_KEY: Final = re.compile(r'(queue|bridge|name)="((?:[^"\\]|\\.)*)"')
_SITE: Final = ("activateSite", "deactivateSite")
_NAME_AT: Final = 2  # where the queue's name stands among many arguments


def meant(call: Mapping[str, Any]) -> tuple[Goal, str, str]:
    """The goal of a call, its thing, and the part of its step, where an undo treats the parts differently."""
    operation, bean = str(call["operation"]).partition("(")[0], str(call["bean"])
    keys = {key: re.sub(r"\\(.)", r"\1", name) for key, name in _KEY.findall(bean)}
    goal = _GOALS[operation]
    if "bridge" in keys:
        goal = _BRIDGES[goal]
    delivers = goal is Goal.RESUME or str(call["about"]).startswith("deliver again by ")
    return goal, _thing(goal, operation, keys, bean, call["arguments"]), "deliver" if delivers else ""


def _thing(goal: Goal, operation: str, keys: Mapping[str, str], bean: str, arguments: Sequence[Any]) -> str:
    if goal is Goal.HOOK:
        return bean.removeprefix("hook:")
    if goal is Goal.WRITE:
        return _created(arguments)
    if operation in _SITE or (goal in _ARGUMENT and "bridge" not in keys):
        return "" if operation in _SITE or not arguments else str(arguments[0])
    return next((keys[key] for key in ("queue", "bridge", "name") if key in keys), "")


def _created(arguments: Sequence[Any]) -> str:
    """The queue's name: a plan has the name alone, a broker's call has the whole configuration."""
    first = str(arguments[0])
    if len(arguments) > _NAME_AT:
        return str(arguments[_NAME_AT])
    return str(json.loads(first)["name"]) if first.startswith("{") else first
