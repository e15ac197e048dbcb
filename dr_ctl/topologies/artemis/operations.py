"""The operations of a broker that dr-ctl calls, each with its whole signature, and the requests made of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dr_ctl.engine.goals import Goal
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.documents import DESTROY_QUEUE, BrokerStore, Operation
from dr_ctl.topologies.common.calls import request

if TYPE_CHECKING:
    from dr_ctl.topologies.common.calls import Request
    from dr_ctl.topologies.common.view import Acceptor, Queue

START: Final = "start()"
STOP: Final = "stop()"
PAUSE: Final = "pause()"
PAUSE_LASTING: Final = "pause(boolean)"
RESUME: Final = "resume()"
MOVE: Final = "moveMessage(long,java.lang.String)"
_TEXT: Final = "java.lang.String"
SHUT_OUT: Final = f"addSecuritySettings({','.join([_TEXT] * 11)})"
# Versions that protect management by roles too; without these two words it would take them away.
SHUT_OUT_WITH_VIEWS: Final = f"addSecuritySettings({','.join([_TEXT] * 13)})"
LET_IN: Final = f"removeSecuritySettings({_TEXT})"
RELOAD: Final = "reloadConfigurationFile()"
# Since 2.56.
START_LOCK: Final = f"startLockCoordinator({_TEXT})"
STOP_LOCK: Final = f"stopLockCoordinator({_TEXT})"


@dataclass(frozen=True, slots=True)
class ArtemisRequests:
    """Implements `Requests` for one broker of that name, whose documents are kept as `document_queue` says."""

    broker: str
    document_queue: BrokerStore

    def of_server(self, operation: Operation) -> Request:
        return request(beans.server(self.broker), *operation)

    def open_listener(self, listener: Acceptor) -> Request:
        return request(listener.bean, START)

    def close_listener(self, listener: Acceptor) -> Request:
        return request(listener.bean, STOP)

    def pause(self, queue: Queue) -> Request:
        return request(queue.bean, PAUSE)

    def pause_lasting(self, queue: Queue) -> Request:
        return request(queue.bean, PAUSE_LASTING, (True,))

    def resume(self, queue: Queue) -> Request:
        return request(queue.bean, RESUME)

    def of_queues(self, goal: Goal, beginning: str) -> Request:
        return request(beans.queues_beginning(self.broker, beginning), PAUSE if goal is Goal.PAUSE else RESUME)

    def write(self, name: str, text: str | None) -> Request:
        operation, arguments = self.document_queue.create(name, text or "")
        return self.of_server((operation, arguments if text is not None else (name,)))

    def remove(self, name: str) -> Request:
        return self.of_server((DESTROY_QUEUE, (name, True)))

    def probe(self, name: str) -> Request:
        return self.of_server(self.document_queue.probe(name))

    def canary(self, name: str) -> Request:
        return self.of_server(self.document_queue.canary(name))

    def remove_queue(self, name: str) -> Request:
        return self.remove(name)
