"""How a broker keeps a document of dr-ctl: a durable queue that carries it, and never a message. Pure.

Creating a queue is atomic and survives a restart. Where its text stands depends on what the broker can set in the
same call: in the queue's `User`, or, in versions that cannot name one, in a filter that no message passes.
"""

import json
from typing import Final, Protocol

from dr_ctl.core.model import Json
from dr_ctl.jolokia.values import Fields

CREATE: Final = "createQueue(java.lang.String)"
# With the second argument a queue that is there already, or is not there, is no error.
CREATE_QUEUE: Final = "createQueue(java.lang.String,boolean)"
UPDATE: Final = "updateQueue(java.lang.String)"
DELETE: Final = "destroyQueue(java.lang.String)"
DESTROY_QUEUE: Final = "destroyQueue(java.lang.String,boolean)"
_TEXT: Final = "java.lang.String"
CREATE_FILTERED: Final = f"createQueue({_TEXT},{_TEXT},{_TEXT},{_TEXT},boolean,int,boolean,boolean)"
UPDATE_FILTERED: Final = (
    f"updateQueue({_TEXT},{_TEXT},{_TEXT},java.lang.Integer,java.lang.Boolean,java.lang.Boolean,java.lang.Boolean,"
    f"java.lang.Integer,java.lang.Boolean,java.lang.Integer,java.lang.Long,{_TEXT})"
)

Operation = tuple[str, tuple[Json, ...]]


class Papers(Protocol):
    """The operations that write documents at one kind of broker, and how their text is read back."""

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes to read of the queue, its name included."""

    def create(self, name: str, text: str, *, kind: str | None = None) -> Operation:
        """Write one down; of a `kind` that is numbered, an existing one is an error, and all share an address."""

    def update(self, name: str, text: str, *, kind: str) -> Operation:
        """Replace the text of one of a numbered kind."""

    def probe(self, name: str) -> Operation:
        """Create a queue that messages pass through, and that no peer gets."""

    def canary(self, name: str) -> Operation:
        """Create a durable queue as clients have them, which the peer gets."""

    def text(self, fields: Fields) -> str:
        """The text, as read back."""

    def is_own(self, bean: str, fields: Fields) -> bool:
        """Say whether only management can have made it: clients may create queues of any name."""


class _InUser:
    """Versions that take a queue's whole configuration in one call."""

    attributes = ("Name", "User", "InternalQueue")

    def create(self, name: str, text: str, *, kind: str | None = None) -> Operation:
        if kind is not None:
            return CREATE, (json.dumps(_numbered(name, _lasting(text), kind)),)
        return CREATE_QUEUE, (json.dumps(internal_queue(name, _lasting(text))), True)

    def update(self, name: str, text: str, *, kind: str) -> Operation:
        # Send all fields: a field left out would be set to its default.
        return UPDATE, (json.dumps(_numbered(name, _lasting(text), kind)),)

    def probe(self, name: str) -> Operation:
        # Neither an internal queue nor its messages reach the peer, whatever the link's address filter says.
        queue = {"name": name, "address": name, "routing-type": "ANYCAST", "durable": False, "internal": True}
        return CREATE_QUEUE, (json.dumps(queue), True)

    def canary(self, name: str) -> Operation:
        queue = {"name": name, "address": name, "routing-type": "ANYCAST", "durable": True, "auto-delete": False}
        return CREATE_QUEUE, (json.dumps(queue), True)

    def text(self, fields: Fields) -> str:
        return fields.any_text("User")

    def is_own(self, bean: str, fields: Fields) -> bool:
        del bean
        # Versions that do not tell it cannot be asked.
        return not fields.has("InternalQueue") or fields.flag("InternalQueue")


IN_USER: Final = _InUser()


def _lasting(text: str) -> str:
    """A document, which is JSON, spelled otherwise: a broker that starts reads `user=TEXT;` from its journal, split at
    both signs."""
    return text.replace("=", r"\u003d").replace(";", r"\u003b")


def _numbered(name: str, text: str, kind: str) -> dict[str, str | bool | int]:
    return {
        "name": name,
        # Documents of a kind share an address: removing a queue leaves its address behind.
        "address": kind,
        "routing-type": "ANYCAST",
        "durable": True,
        "internal": True,
        "auto-create-address": True,
        "auto-delete": False,
        "max-consumers": 0,
        "purge-on-no-consumers": False,
        "exclusive": False,
        "user": text,
    }


def internal_queue(name: str, user: str) -> dict[str, str | bool]:
    """The configuration of a document's queue: durable, and never mirrored."""
    return {
        "name": name,
        "address": name,
        "routing-type": "ANYCAST",
        "durable": True,
        "internal": True,
        "auto-delete": False,
        "user": user,
    }


def created(operation: str, arguments: tuple[Json, ...]) -> str:
    """The name of the queue that a call creates."""
    return str(arguments[2]) if operation == CREATE_FILTERED else str(json.loads(str(arguments[0]))["name"])
