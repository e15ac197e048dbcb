"""The way to an Artemis broker, for readings and for changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dr_ctl.engine.lease import Store
from dr_ctl.jolokia.client import Answer, Read
from dr_ctl.jolokia.values import Fields
from dr_ctl.settings.artemis import ArtemisBroker
from dr_ctl.topologies.artemis import beans, reading
from dr_ctl.topologies.artemis.broker import B_co
from dr_ctl.topologies.artemis.documents import Documents
from dr_ctl.topologies.common import access
from dr_ctl.topologies.common.access import Part
from dr_ctl.topologies.common.group import Itself
from dr_ctl.topologies.common.view import Config


class Primaries:
    """Each node has a name of its own for the broker, and may begin the broker again in the same process."""

    question = Read(
        beans.ANY_SERVER,
        (
            "Name",
            "Active",
            "Backup",
            "NodeID",
            "Version",
            "HAPolicy",
            "ReplicaSync",
            "CurrentTimeMillis",
            "UptimeMillis",
        ),
    )

    @staticmethod
    def itself(answer: Answer) -> Itself:
        """The oldest versions say only whether a node is a backup that waits. Raises `BrokerError`."""
        [(bean, fields)] = answer.beans() or [("", Fields("the broker", {}))]
        waits = fields.flag("Backup") or (fields.has("Active") and not fields.flag("Active"))
        policy = (fields.optional_text("HAPolicy") if fields.has("HAPolicy") else None) or ""
        has_clock = fields.has("CurrentTimeMillis") and fields.has("UptimeMillis")
        return Itself(
            beans.parts(bean)["broker"],
            not waits,
            fields.text("NodeID"),
            fields.text("Version"),
            fields.flag("ReplicaSync") if policy.startswith("Replication") and fields.has("ReplicaSync") else None,
            fields.number("CurrentTimeMillis") - fields.number("UptimeMillis") if has_clock else None,
        )

    @staticmethod
    def part(broker: str) -> str:
        return f"broker={beans.quote(broker)}"


class Access(access.Access[B_co]):
    family = Primaries()
    settings: ArtemisBroker
    find_broker = staticmethod(reading.find_broker)

    def _config(self) -> Config:
        return replace(super()._config(), mirror=self.settings.link_listeners, cluster=self.settings.cluster or ())

    def store(self) -> Store:
        return Documents(self)

    @staticmethod
    def clock(broker: str) -> Read:
        """The read that gives the broker's own time."""
        return Read(beans.server(broker), ("CurrentTimeMillis",))

    @staticmethod
    def clock_ms(answer: Answer) -> int:
        """The broker's time out of that, in milliseconds since 1970."""
        return Fields("the broker's clock", answer.value()).number("CurrentTimeMillis")

    def _beside(self, view: B_co, parts: Part, timeout_s: float) -> B_co:  # type: ignore[misc] # its own
        if Part.LIMITS not in parts:
            return view
        at_addresses = reading.limits_of_addresses(self.reader(), view, timeout_s=timeout_s)
        return replace(view, obstacles=(*view.obstacles, *at_addresses))

    def dispatch(self) -> Mapping[str, tuple[int, bool]]:
        return reading.dispatch(self.reader(), self.names())

    def uncovered(self) -> list[str]:
        return reading.uncovered(self.reader(), self.names())
