"""The plugin's parts for one clients' queue: four queues, two bridges to the peer, one that delivers."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from dr_ctl_lab.twin.bridge import Bridge
from dr_ctl_lab.twin.clock import Clock
from dr_ctl_lab.twin.continuity.receiver import Receiver
from dr_ctl_lab.twin.messages import Message, Queue

OUT_MIRROR, OUT_ACKS, IN_MIRROR, IN_ACKS = ".out.mirror", ".out.acks", ".in.mirror", ".in.acks"
COMMANDS: Final = "continuity.cmd"
# The plugin reads the suffixes as patterns: a dot matches any character.
NO_FLOW: Final = re.compile(f".*({OUT_MIRROR}|{OUT_ACKS}|{IN_MIRROR}|{IN_ACKS}|{COMMANDS}).*")
ID: Final = "_AMQ_DUPL_ID"
ORIGIN: Final = "_CTY_ORIGIN"


class Flow:
    """`queue` is the clients' queue; `make` creates a queue by name and routing."""

    def __init__(self, queue: Queue, make: Callable[[str, str], Queue], clock: Clock) -> None:
        name, self.queue = queue.name, queue
        self.out_mirror = make(f"{name}{OUT_MIRROR}", "anycast")  # as a lab declares it
        self.out_acks = make(f"{name}{OUT_ACKS}", "multicast")
        self.staging = make(f"{name}{IN_MIRROR}", "anycast")
        self.in_acks = make(f"{name}{IN_ACKS}", "anycast")
        self.mirror_bridge = Bridge(f"{self.out_mirror.name}.bridge", self.out_mirror, self.staging.name, clock)
        self.acks_bridge = Bridge(f"{self.out_acks.name}.bridge", self.out_acks, self.in_acks.name, clock)
        self.target_bridge = Bridge(f"{self.staging.name}.bridge", self.staging, queue.address, clock)
        self.receiver = Receiver(self.in_acks)
        self.divert = f"{self.out_mirror.name}.divert"

    @property
    def queues(self) -> tuple[Queue, ...]:
        return self.out_mirror, self.out_acks, self.staging, self.in_acks

    @property
    def shipping_bridges(self) -> tuple[Bridge, Bridge]:
        return self.mirror_bridge, self.acks_bridge

    @property
    def bridges(self) -> tuple[Bridge, ...]:
        return *self.shipping_bridges, self.target_bridge


def acknowledgement(message: Message, queue: str, at_ms: int) -> bytes:
    """The plugin's notice to its peer about an acknowledged message."""
    document = {
        "msg-send-time": _date(message.timestamp_ms),
        "ack-time": _date(at_ms),
        "msg-uuid": message.headers.get(ID, ""),
        "src-queue": queue,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def acknowledged(body: bytes) -> str:
    return str(json.loads(body)["msg-uuid"])


def _date(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}+0000"
