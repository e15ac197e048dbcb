"""The operations of a broker that dr-ctl calls, each with its whole signature, and the calls made of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from dr_ctl.engine.goals import ALL, Goal
from dr_ctl.engine.plan import Call
from dr_ctl.jolokia import beans
from dr_ctl.jolokia.client import Change
from dr_ctl.topologies.artemis.papers import DESTROY_QUEUE, Operation

if TYPE_CHECKING:
    from dr_ctl.core.model import Json
    from dr_ctl.topologies.artemis.view import Acceptor, Broker, Queue

START: Final = "start()"
STOP: Final = "stop()"
PAUSE: Final = "pause()"
PAUSE_LASTING: Final = "pause(boolean)"
RESUME: Final = "resume()"
# Of the continuity plugin: the one call that opens or closes all client doors of a site's broker.
ACTIVATE_SITE: Final = "activateSite(java.lang.Long)"
DEACTIVATE_SITE: Final = "deactivateSite()"
MOVE: Final = "moveMessage(long,java.lang.String)"
_TEXT: Final = "java.lang.String"
SHUT_OUT: Final = f"addSecuritySettings({','.join([_TEXT] * 11)})"
# Versions that protect management by roles too; without these two words it would take them away.
SHUT_OUT_WITH_VIEWS: Final = f"addSecuritySettings({','.join([_TEXT] * 13)})"
LET_IN: Final = f"removeSecuritySettings({_TEXT})"
RELOAD: Final = "reloadConfigurationFile()"


def call(
    view: Broker,
    goal: Goal,
    thing: str,
    request: Mapping[str, Json],
    about: str,
    when: str | None = None,
    at_most: int = 1,
) -> Call:
    """Make a call at one broker; `about` says what it does, without where."""
    return Call(view.site, view.pair, goal, thing, request, f"{about} at {view.site}", when, at_most)


def request(bean: str, operation: str, arguments: tuple[Json, ...] = ()) -> Mapping[str, Json]:
    """What is sent; the whole signature, because brokers overload names between versions."""
    return {"bean": bean, "operation": operation, "arguments": [*arguments]}


def change(call: Call) -> Change:
    """The request of a call as it goes out."""
    arguments = call.request["arguments"]
    assert isinstance(arguments, list)
    return Change(str(call.request["bean"]), str(call.request["operation"]), tuple(arguments))


def open_door(view: Broker, door: Acceptor, when: str | None = None) -> Call:
    return call(view, Goal.OPEN, door.name, request(door.bean, START), f"open {_named(view, door)}", when)


def close_door(view: Broker, door: Acceptor, when: str | None = None) -> Call:
    return call(view, Goal.CLOSE, door.name, request(door.bean, STOP), f"close {_named(view, door)}", when)


def _named(view: Broker, door: Acceptor) -> str:
    return f"acceptor {door.name}{' of the link' if door in view.mirror_doors else ''}"


def pause(view: Broker, queue: Queue, when: str | None = None, at_most: int = 1) -> Call:
    return call(view, Goal.PAUSE, queue.name, request(queue.bean, PAUSE), f"pause {queue.name}", when, at_most)


def pause_lasting(view: Broker, queue: Queue) -> Call:
    """Pause a queue so that it stays paused when the broker is restarted."""
    asked = request(queue.bean, PAUSE_LASTING, (True,))
    return call(view, Goal.PAUSE, queue.name, asked, f"pause {queue.name}")


def resume(view: Broker, queue: Queue, when: str | None = None) -> Call:
    return call(view, Goal.RESUME, queue.name, request(queue.bean, RESUME), f"resume {queue.name}", when)


def of_new_queues(view: Broker, goal: Goal, at_most: int) -> Call:
    """What a plan says of the queues that are created after the look: paused, or resumed."""
    word = goal.value
    asked = request(beans.all_queues(view.broker), PAUSE if goal is Goal.PAUSE else RESUME)
    text, when = f"{word} a queue that was created meanwhile", "a queue was created since the look"
    return call(view, goal, ALL, asked, text, when, at_most)


def write_document(view: Broker, name: str, operation: Operation, about: str, when: str | None = None) -> Call:
    """Make a call of what `Papers` says; `about` says all of it."""
    return Call(view.site, view.pair, Goal.WRITE, name, request(beans.server(view.broker), *operation), about, when)


def remove_document(view: Broker, name: str, about: str, when: str | None = None) -> Call:
    asked = request(beans.server(view.broker), DESTROY_QUEUE, (name, True))
    return Call(view.site, view.pair, Goal.STRIKE, name, asked, about, when)
