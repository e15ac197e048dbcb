"""What dr-ctl remembers at a broker: small documents, each in the `User` of an internal queue of its own.

Creating a queue is atomic, its `User` is free text that survives a restart, an internal queue is never mirrored, and
one read gives them all beside the broker's clock. The name says the kind, the site that holds it, and a number.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from dr_ctl.engine.lease import Forbidden
from dr_ctl.jolokia import beans
from dr_ctl.jolokia.client import Answer, Ask, Change, Changer, Listing, Read, Reader, Wire
from dr_ctl.jolokia.errors import BadValue, NoSuchBean
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.mirror.access import Access
from dr_ctl.topologies.mirror.names import numbered

CREATE: Final = "createQueue(java.lang.String)"
UPDATE: Final = "updateQueue(java.lang.String)"
DELETE: Final = "destroyQueue(java.lang.String)"
READ_S: Final = 2.0
WRITE_S: Final = 5.0
_EXISTS: Final = "AMQ229019"


class Documents:
    """The documents of one broker, on a connection of its own."""

    def __init__(self, access: Access) -> None:
        self.site, self.pair = access.site, access.pair
        self._access = access
        self._wire: Wire | None = None

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()

    def read(self, kind: str) -> tuple[int, Sequence[tuple[int, str]]]:
        broker = self._access.names().broker
        server = beans.server(broker)
        now, told = Reader(self._open()).look(
            [Read(server, ("CurrentTimeMillis",)), Read(beans.documents(broker), ("Name", "User"))], timeout_s=READ_S
        )
        return Fields(server, now.value()).number("CurrentTimeMillis"), numbered(_texts(told), kind)

    def create(self, kind: str, number: int, text: str) -> bool:
        answer = self._change(CREATE, json.dumps(self._queue(kind, number, text)))
        if answer.error is None:
            return True
        if _EXISTS in str(answer.error):
            return False
        raise Forbidden(str(answer.error))

    def update(self, kind: str, number: int, text: str) -> None:
        # With all fields: what is left out would be set to what it is by default.
        self._change(UPDATE, json.dumps(self._queue(kind, number, text))).value()

    def delete(self, kind: str, number: int) -> None:
        self._change(DELETE, self._name(kind, number)).value()

    def why_forbidden(self) -> str | None:
        """Ask, without trying, whether this user may create documents; None where it may, or that cannot be told."""
        server = beans.server(self._access.names().broker)
        asked = Ask(beans.SECURITY, Listing.MAY_CALL, (server, "createQueue", ["java.lang.String"]))
        answer = Reader(self._open()).look([asked], timeout_s=READ_S)[0]
        if answer.error is None and answer.value() is False:
            return "this user may not create queues"
        return None

    def _queue(self, kind: str, number: int, text: str) -> dict[str, str | bool | int]:
        return {
            "name": self._name(kind, number),
            # One address for all of a kind: removing a queue leaves its address behind.
            "address": f"dr-ctl.{kind}.{self.site}",
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

    def _name(self, kind: str, number: int) -> str:
        return f"dr-ctl.{kind}.{self.site}.{number}"

    def _change(self, operation: str, argument: str) -> Answer:
        server = beans.server(self._access.names().broker)
        return Changer(self._open()).change([Change(server, operation, (argument,))], timeout_s=WRITE_S)[0]

    def _open(self) -> Wire:
        if self._wire is None:
            self._wire = self._access.wire()
        return self._wire


def _texts(told: Answer) -> dict[str, str]:
    if isinstance(told.error, NoSuchBean):
        return {}
    value = told.value()
    if not isinstance(value, dict):
        raise BadValue("a read by pattern gave no beans")
    fields = [Fields(bean, each) for bean, each in value.items()]
    return {each.text("Name"): each.optional_text("User") or "" for each in fields}
