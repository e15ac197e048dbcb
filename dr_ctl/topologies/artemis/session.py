"""The way to an Artemis broker, for readings and for changes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dr_ctl.core.system import boottime_s
from dr_ctl.engine.lease import NOBODYS, Forbidden, Store
from dr_ctl.jolokia.client import Answer, Listing, Query, Read, Reader, Transport, make_changes
from dr_ctl.jolokia.values import Fields
from dr_ctl.settings.artemis import ArtemisBroker
from dr_ctl.topologies.artemis import beans, reading
from dr_ctl.topologies.artemis.broker import DELETE, ArtemisRequests, B_co
from dr_ctl.topologies.common import session
from dr_ctl.topologies.common.calls import OWN, Request, numbered
from dr_ctl.topologies.common.group import Family, NodeAnswer
from dr_ctl.topologies.common.session import ReadScope, change
from dr_ctl.topologies.common.view import Config
from dr_ctl.topologies.topology import NodeReading, NodeState

READ_S: Final = 2.0
WRITE_S: Final = 5.0
_EXISTS: Final = "AMQ229019"


def _itself(answer: Answer) -> NodeAnswer:
    """Read a node's answer; the oldest versions say only whether it is a waiting backup. Raises `BrokerError`."""
    [(bean, fields)] = answer.beans() or [("", Fields("the broker", {}))]
    waits = fields.flag("Backup") or (fields.has("Active") and not fields.flag("Active"))
    policy = (fields.optional_text("HAPolicy") if fields.has("HAPolicy") else None) or ""
    has_clock = fields.has("CurrentTimeMillis") and fields.has("UptimeMillis")
    reading = NodeReading(
        "",
        NodeState.PASSIVE if waits else NodeState.ACTIVE,
        node=fields.text("NodeID"),
        version=fields.text("Version"),
        in_sync=fields.flag("ReplicaSync") if policy.startswith("Replication") and fields.has("ReplicaSync") else None,
        pending=fields.number("PendingMirrorAcks") if fields.has("PendingMirrorAcks") else 0,
    )
    began_ms = fields.number("CurrentTimeMillis") - fields.number("UptimeMillis") if has_clock else None
    return NodeAnswer(beans.parts(bean)["broker"], reading, began_ms)


_TOLD: Final = (
    "Name", "Active", "Backup", "NodeID", "Version", "HAPolicy", "ReplicaSync", "CurrentTimeMillis", "UptimeMillis",
    "PendingMirrorAcks",
)  # fmt: skip
# A node has its own name for the broker, and may begin the broker again in the same process.
PRIMARIES: Final = Family(Read(beans.ANY_SERVER, _TOLD), _itself, lambda broker: f"broker={beans.quote(broker)}")


class Session(session.Session[B_co]):
    family = PRIMARIES
    settings: ArtemisBroker
    find_broker = staticmethod(reading.find_broker)

    def _config(self) -> Config:
        return replace(super()._config(), mirror=self.settings.link_listeners, cluster=self.settings.cluster or ())

    def store(self) -> Store:
        return Documents(self)

    @staticmethod
    def clock(broker: str) -> Read:
        return Read(beans.server(broker), ("CurrentTimeMillis",))

    @staticmethod
    def clock_ms(answer: Answer) -> int:
        return Fields("the broker's clock", answer.value()).number("CurrentTimeMillis")

    def _read_extra(self, view: B_co, scope: ReadScope, timeout_s: float) -> B_co:  # type: ignore[misc] # its own
        if ReadScope.LIMITS not in scope:
            return view
        at_addresses = reading.limits_of_addresses(self.reader(), view, timeout_s=timeout_s)
        # The rights that a lasting fence leaves to other roles matter only behind open listeners.
        nobody = view.open and view.fence.roles_revoked and reading.serves_no_role(self.reader(), view)
        return replace(view, obstacles=(*view.obstacles, *at_addresses), serves_no_role=nobody)

    def dispatch(self) -> Mapping[str, tuple[int, bool]]:
        return reading.dispatch(self.reader(), self.last_view())

    def uncovered(self) -> list[str]:
        view = self.last_view()
        business = {queue.address for queue in view.business.values()}
        rows = reading.at_addresses(self.reader(), view) if view.config.lasting is not None else ()
        return sorted(name for name, granted in rows if name in business and view.lets_in_by(granted))


class Documents:
    def __init__(self, session: Session[Any]) -> None:
        self.site, self.pair = session.site, session.pair
        self._session = session
        self._wire: Transport | None = None

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()

    def read(self, kind: str) -> tuple[int, Sequence[tuple[int, str]]]:
        requests = self._requests
        asked = [self._session.clock(requests.broker), Read(beans.documents(requests.broker), requests.attributes)]
        now, listed = Reader(self._open()).read(asked, timeout_s=READ_S)
        texts = {
            row.any_text("Name"): requests.text(row) if requests.is_own(bean, row) else NOBODYS
            for bean, row in listed.beans()
        }
        return self._session.clock_ms(now), numbered(texts, kind)

    def lately(self, kind: str) -> tuple[float, int, Sequence[tuple[int, str]]] | None:
        if (newest := self._session.newest) is None:
            return None
        began, view = newest
        texts = {**view.documents, **dict.fromkeys(view.forged, NOBODYS)}
        return boottime_s() - began, view.now_ms, numbered(texts, kind)

    def create(self, kind: str, number: int, text: str) -> bool:
        address = f"{OWN}{kind}.{self.site}"
        answer = self._change(self._requests.create(f"{address}.{number}", text, kind=address))
        if answer.error is not None and _EXISTS not in str(answer.error):
            raise Forbidden(str(answer.error))
        return answer.error is None

    def update(self, kind: str, number: int, text: str) -> None:
        address = f"{OWN}{kind}.{self.site}"
        self._change(self._requests.update(f"{address}.{number}", text, kind=address)).value()

    def delete(self, kind: str, number: int) -> None:
        self._change(self._requests.of_server(DELETE, f"{OWN}{kind}.{self.site}.{number}")).value()

    def why_forbidden(self) -> str | None:
        """Ask whether this user may create documents, without trying; return None too where nobody can tell."""
        server = beans.server(self._requests.broker)
        asked = Query(beans.SECURITY, Listing.MAY_CALL, (server, "createQueue", ["java.lang.String"]))
        answer = Reader(self._open()).read([asked], timeout_s=READ_S)[0]
        return "this user may not create queues" if answer.error is None and answer.value() is False else None

    @property
    def _requests(self) -> ArtemisRequests:
        requests: ArtemisRequests = self._session.last_view().requests
        return requests

    def _change(self, asked: Request) -> Answer:
        return make_changes(self._open(), [change(asked)], timeout_s=WRITE_S)[0]

    def _open(self) -> Transport:
        if self._wire is None:
            self._wire = self._session.wire()
        return self._wire
