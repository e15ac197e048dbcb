"""The plugin's service at one broker: activation, delivery, and commands between the two plugins.

A start is always inactive. Commands survive a death, and are executed whenever they arrive.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from dr_ctl_lab.twin.bridge import Bridge
from dr_ctl_lab.twin.continuity.receiver import Receiver
from dr_ctl_lab.twin.messages import Queue

if TYPE_CHECKING:
    from dr_ctl_lab.twin.continuity.broker import ContinuityBroker

ACTIVATION_MS: Final = 30_000
POLL_S: Final = 0.02


class Service:
    """`out` and `into` are the queues of commands to and from the peer."""

    def __init__(self, broker: ContinuityBroker, out: Queue, into: Queue) -> None:
        self.broker, self.out, self.into = broker, out, into
        self.connectors = broker.connectors("peer")
        self.bridge = Bridge(f"{out.name}.bridge", out, into.name, broker.clock)
        self._receiver = Receiver(into)
        self.started = self.activated = self.delivering = False
        self._exhausted = 0  # deactivations whose notice waits for an empty outflow
        self._peer_is_empty = False
        self._deliver_at_s: float | None = None

    def start(self) -> None:
        self.started = self.bridge.started = True
        self._receiver.listen()
        self.send_command("broker-connect", status="inacive")

    def on_death(self) -> None:
        self.bridge.on_death()
        self.started = self.activated = self.delivering = self._peer_is_empty = False
        self._exhausted, self._deliver_at_s = 0, None

    def activate(self, timeout_ms: int | None = None) -> None:
        """Let clients in at once; deliver staged messages when the peer's outflow is empty, or after the time-out."""
        self.activated = True
        self._peer_is_empty = False
        self.broker.open_listener(self.broker.acceptors["clients"])
        self.send_command("deactivate-site")
        self._deliver_at_s = self.broker.clock.now_s() + (ACTIVATION_MS if timeout_ms is None else timeout_ms) / 1000
        self.broker.changed.notify_all()

    def deactivate(self) -> None:
        """Stop delivery and keep clients out; notify the peer once the outflow is empty."""
        self.activated = self.delivering = self._peer_is_empty = False
        self._deliver_at_s = None
        for flow in self.broker.flows.values():
            flow.target_bridge.stop()
        self.broker.close_listener(self.broker.acceptors["clients"])
        self._exhausted += 1
        self.broker.changed.notify_all()

    def send_command(self, action: str, *, address: str = "", queue: str = "", status: str = "") -> None:
        """Send a command to the peer."""
        command = {"action": action, "addr": address, "queue": queue, "origin": self.broker.site, "status": status}
        body = json.dumps({key: text for key, text in command.items() if text})
        self.broker.write(self.out, body.encode(), {})

    def work(self, now_s: float) -> list[float]:
        """Execute commands, send due notices, and start due deliveries; return the times when more is due."""
        for message in self._receiver.receive():
            self._execute(json.loads(message.body))
        flows = self.broker.flows.values()
        if self._exhausted and not any(queue.messages for flow in flows for queue in (flow.out_mirror, flow.out_acks)):
            for _ in range(self._exhausted):
                self.send_command("notif-outflow-exhausted")
            self._exhausted = 0
        applied = not any(flow.in_acks.messages for flow in flows)
        timed_out = self._deliver_at_s is not None and now_s >= self._deliver_at_s
        if self.activated and ((self._peer_is_empty and applied) or timed_out):
            self._deliver()
        waits = [now_s + POLL_S] if self._exhausted or self._peer_is_empty else []
        return waits + ([self._deliver_at_s] if self._deliver_at_s is not None else [])

    def _deliver(self) -> None:
        """Start every delivery, even one that a person has stopped."""
        self.delivering, self._peer_is_empty, self._deliver_at_s = True, False, None
        for flow in self.broker.flows.values():
            flow.target_bridge.started = True
        self.broker.changed.notify_all()

    def _execute(self, command: dict[str, str]) -> None:
        broker, queue = self.broker, command.get("queue", "")
        match command["action"]:
            case "broker-connect":
                if self.activated:
                    self.send_command("notif-site-active")
                elif broker.active_on_start:
                    self.activate(1)
                else:
                    self.send_command("notif-site-inactive")
                for flow in broker.flows.values():
                    self.send_command("add-queue", address=flow.queue.address, queue=flow.queue.name)
            case "activate-site":
                self.activate()
            case "deactivate-site":
                self.deactivate()
            case "notif-outflow-exhausted" if self.activated:
                self._peer_is_empty = True
            case "add-queue" if queue not in broker.queues:
                options = {"name": queue, "address": command["addr"], "routing-type": "ANYCAST", "durable": True}
                broker.create_queue(options, here_only=True)
