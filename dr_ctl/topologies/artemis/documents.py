"""The documents of dr-ctl at a broker: small texts, each kept by a queue of its own, as `document_queue` says.

A read gives all of them with the broker's clock. The name says the kind, the site that holds it, and a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from dr_ctl.core.clock import growing_s
from dr_ctl.core.model import Json
from dr_ctl.engine.lease import NOBODYS, Forbidden
from dr_ctl.jolokia.client import Answer, Ask, Change, Changer, Listing, Read, Reader, Wire
from dr_ctl.jolokia.errors import BadValue, NoSuchBean
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.artemis import beans
from dr_ctl.topologies.artemis.document_queue import DELETE, Papers
from dr_ctl.topologies.common.names import numbered

if TYPE_CHECKING:
    from dr_ctl.topologies.artemis.access import Access
    from dr_ctl.topologies.artemis.broker import ArtemisBroker

READ_S: Final = 2.0
WRITE_S: Final = 5.0
_EXISTS: Final = "AMQ229019"


class Documents:
    """The documents of one broker, on a connection of its own."""

    def __init__(self, access: Access[ArtemisBroker]) -> None:
        self.site, self.pair = access.site, access.pair
        self._access = access
        self._wire: Wire | None = None

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

    def _open(self) -> Wire:
        if self._wire is None:
            self._wire = self._access.wire()
        return self._wire


def _texts(answer: Answer, document_queue: Papers) -> dict[str, str]:
    if isinstance(answer.error, NoSuchBean):
        return {}
    value = answer.value()
    if not isinstance(value, dict):
        raise BadValue("a read by pattern gave no beans")
    fields = {bean: Fields(bean, each) for bean, each in value.items()}
    return {
        each.any_text("Name"): document_queue.text(each) if document_queue.is_own(bean, each) else NOBODYS
        for bean, each in fields.items()
    }
