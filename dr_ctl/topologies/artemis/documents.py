"""How a broker keeps a document of dr-ctl, a small text: a durable queue that carries it, and never a message."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from dr_ctl.core.model import Json
from dr_ctl.core.system import growing_s
from dr_ctl.engine.lease import NOBODYS, Forbidden
from dr_ctl.jolokia.client import Answer, Ask, Change, Changer, Listing, Read, Reader, Way
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.common.names import numbered

if TYPE_CHECKING:
    from dr_ctl.topologies.artemis.access import Access
    from dr_ctl.topologies.artemis.broker import ArtemisBroker

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
READ_S: Final = 2.0
WRITE_S: Final = 5.0
_EXISTS: Final = "AMQ229019"


class BrokerStore:
    """The operations that write documents at a broker, and how their text is read back: where versions take a queue's
    whole configuration in one call. `attributes` are read of the queue, its name included."""

    attributes: ClassVar[tuple[str, ...]] = ("Name", "User", "InternalQueue")

    def create(self, name: str, text: str, *, kind: str | None = None) -> Operation:
        """Write one down; of a `kind` that is numbered, an existing one is an error, and all share an address."""
        if kind is not None:
            return CREATE, (json.dumps(_numbered(name, _lasting(text), kind)),)
        return CREATE_QUEUE, (json.dumps(internal_queue(name, _lasting(text))), True)

    def update(self, name: str, text: str, *, kind: str) -> Operation:
        """Replace the text of one of a numbered kind."""
        # Send all fields: a field left out would be set to its default.
        return UPDATE, (json.dumps(_numbered(name, _lasting(text), kind)),)

    def probe(self, name: str) -> Operation:
        """Create a queue that messages pass through, and that no peer gets."""
        # Neither an internal queue nor its messages reach the peer, whatever the link's address filter says.
        return CREATE_QUEUE, (json.dumps({**_QUEUE, "name": name, "address": name, "durable": False}), True)

    def canary(self, name: str) -> Operation:
        """Create a durable queue as clients have them, which the peer gets."""
        queue = {"name": name, "address": name, "routing-type": "ANYCAST", "durable": True, "auto-delete": False}
        return CREATE_QUEUE, (json.dumps(queue), True)

    def text(self, fields: Fields) -> str:
        """The text, as read back."""
        return fields.any_text("User")

    def is_own(self, _bean: str, fields: Fields) -> bool:
        """Say whether only management can have made it: clients may create queues of any name."""
        # Versions that do not tell it cannot be asked.
        return not fields.has("InternalQueue") or fields.flag("InternalQueue")


IN_USER: Final = BrokerStore()
_QUEUE: Final[dict[str, str | bool | int]] = {"routing-type": "ANYCAST", "durable": True, "internal": True}


def _lasting(text: str) -> str:
    """A document, which is JSON, spelled otherwise: a broker that starts reads `user=TEXT;` from its journal, split at
    both signs."""
    return text.replace("=", r"\u003d").replace(";", r"\u003b")


def _numbered(name: str, text: str, kind: str) -> dict[str, str | bool | int]:
    """Documents of a kind share an address: removing a queue leaves its address behind."""
    nobodys = {"max-consumers": 0, "purge-on-no-consumers": False, "exclusive": False}
    return {**internal_queue(name, text), "address": kind, "auto-create-address": True, **nobodys}


def internal_queue(name: str, user: str) -> dict[str, str | bool | int]:
    """The configuration of a document's queue: durable, and never mirrored."""
    return {"name": name, "address": name, **_QUEUE, "auto-delete": False, "user": user}


def created(operation: str, arguments: tuple[Json, ...]) -> str:
    """The name of the queue that a call creates."""
    return str(arguments[2]) if operation == CREATE_FILTERED else str(json.loads(str(arguments[0]))["name"])


class Documents:
    """The documents of one broker, on a connection of its own."""

    def __init__(self, access: Access[ArtemisBroker]) -> None:
        self.site, self.pair = access.site, access.pair
        self._access = access
        self._wire: Way | None = None

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()

    def read(self, kind: str) -> tuple[int, Sequence[tuple[int, str]]]:
        names = self._access.names()
        now, listed = Reader(self._open()).look(
            [self._access.clock(names.broker), Read(beans.documents(names.broker), names.document_queue.attributes)],
            timeout_s=READ_S,
        )
        return self._access.clock_ms(now), numbered(_texts(listed, names.document_queue), kind)

    def lately(self, kind: str) -> tuple[float, int, Sequence[tuple[int, str]]] | None:
        if (newest := self._access.newest) is None:
            return None
        began, view = newest
        texts = {**view.documents, **dict.fromkeys(view.forged, NOBODYS)}
        return growing_s() - began, view.now_ms, numbered(texts, kind)

    def create(self, kind: str, number: int, text: str) -> bool:
        names = self._access.names()
        answer = self._change(*names.document_queue.create(self._name(kind, number), text, kind=self._kind(kind)))
        if answer.error is None:
            return True
        if _EXISTS in str(answer.error):
            return False
        raise Forbidden(str(answer.error))

    def update(self, kind: str, number: int, text: str) -> None:
        names = self._access.names()
        self._change(*names.document_queue.update(self._name(kind, number), text, kind=self._kind(kind))).value()

    def delete(self, kind: str, number: int) -> None:
        self._change(DELETE, (self._name(kind, number),)).value()

    def why_forbidden(self) -> str | None:
        """Ask, without trying, whether this user may create documents; returns None where the user may, or the broker
        does not say."""
        server = beans.server(self._access.names().broker)
        asked = Ask(beans.SECURITY, Listing.MAY_CALL, (server, "createQueue", ["java.lang.String"]))
        answer = Reader(self._open()).look([asked], timeout_s=READ_S)[0]
        if answer.error is None and answer.value() is False:
            return "this user may not create queues"
        return None

    def _name(self, kind: str, number: int) -> str:
        return f"dr-ctl.{kind}.{self.site}.{number}"

    def _kind(self, kind: str) -> str:
        return f"dr-ctl.{kind}.{self.site}"

    def _change(self, operation: str, arguments: tuple[Json, ...]) -> Answer:
        server = beans.server(self._access.names().broker)
        return Changer(self._open()).change([Change(server, operation, arguments)], timeout_s=WRITE_S)[0]

    def _open(self) -> Way:
        if self._wire is None:
            self._wire = self._access.wire()
        return self._wire


def _texts(answer: Answer, document_queue: BrokerStore) -> dict[str, str]:
    return {
        each.any_text("Name"): document_queue.text(each) if document_queue.is_own(bean, each) else NOBODYS
        for bean, each in answer.beans()
    }
