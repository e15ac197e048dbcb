"""Events that the replication plugin of a source writes as messages into its own queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from dr_ctl_lab.twin.messages import Message, Origin

PLUGIN: Final = "ActiveMQ.Plugin.Replication"
EVENTS: Final = f"{PLUGIN}.Queue"
INTERMEDIATE: Final = f"{PLUGIN}.Intermediate.Queue"
SEQUENCE: Final = f"{PLUGIN}.Sequence.Queue"
ROLES: Final = f"{PLUGIN}.Role.Queue"


class Role(Enum):
    """The role of a broker. A source that waits for its replica's answer, to become a replica itself, is still called a
    source."""

    SOURCE = "source"
    AWAIT_ACK = "await_ack"
    REPLICA = "replica"

    @property
    def shown(self) -> str:
        return Role.REPLICA.value if self is Role.REPLICA else Role.SOURCE.value


class Kind(Enum):
    SEND = "MESSAGE_SEND"
    ACK = "MESSAGE_ACK"
    FAIL_OVER = "FAIL_OVER"


@dataclass(eq=False, slots=True)
class Event(Message):
    """`sent`: the message that was stored in `queue`; `done`: which one of it was acknowledged."""

    kind: Kind = field(kw_only=True)
    queue: str = ""
    sent: Message | None = None
    done: Origin | None = None
