"""The operations of a broker that dr-ctl calls, each with its whole signature, and the calls made of them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dr_ctl.engine.plan import Call
from dr_ctl.jolokia import beans
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
OPENING: Final = (START, ACTIVATE_SITE)
CLOSING: Final = (STOP, DEACTIVATE_SITE)
MOVE: Final = "moveMessage(long,java.lang.String)"
_TEXT: Final = "java.lang.String"
SHUT_OUT: Final = f"addSecuritySettings({','.join([_TEXT] * 11)})"
# Versions that protect management by roles too; without these two words it would take them away.
SHUT_OUT_WITH_VIEWS: Final = f"addSecuritySettings({','.join([_TEXT] * 13)})"
LET_IN: Final = f"removeSecuritySettings({_TEXT})"
RELOAD: Final = "reloadConfigurationFile()"
KEEPS_OUT: Final = (SHUT_OUT, SHUT_OUT_WITH_VIEWS)
ADMITS: Final = (LET_IN, RELOAD)


def call(
    view: Broker,
    bean: str,
    operation: str,
    arguments: tuple[Json, ...],
    about: str,
    when: str | None = None,
    at_most: int = 1,
) -> Call:
    """Make a call at one broker; `about` says what it does, without where."""
    return Call(view.site, view.pair, bean, operation, arguments, f"{about} at {view.site}", when, at_most)


def open_door(view: Broker, door: Acceptor, when: str | None = None) -> Call:
    return call(view, door.bean, START, (), f"open {_named(view, door)}", when)


def close_door(view: Broker, door: Acceptor, when: str | None = None) -> Call:
    return call(view, door.bean, STOP, (), f"close {_named(view, door)}", when)


def _named(view: Broker, door: Acceptor) -> str:
    return f"acceptor {door.name}{' of the link' if door in view.mirror_doors else ''}"


def pause(view: Broker, queue: Queue, when: str | None = None, at_most: int = 1) -> Call:
    return call(view, queue.bean, PAUSE, (), f"pause {queue.name}", when, at_most)


def pause_lasting(view: Broker, queue: Queue) -> Call:
    """Pause a queue so that it stays paused when the broker is restarted."""
    return call(view, queue.bean, PAUSE_LASTING, (True,), f"pause {queue.name}")


def resume(view: Broker, queue: Queue, when: str | None = None) -> Call:
    return call(view, queue.bean, RESUME, (), f"resume {queue.name}", when)


def write_document(view: Broker, operation: Operation, about: str, when: str | None = None) -> Call:
    """Make a call of what `Papers` says; `about` says all of it."""
    return Call(view.site, view.pair, beans.server(view.broker), *operation, about, when)


def remove_document(view: Broker, name: str, about: str, when: str | None = None) -> Call:
    return Call(view.site, view.pair, beans.server(view.broker), DESTROY_QUEUE, (name, True), about, when)
