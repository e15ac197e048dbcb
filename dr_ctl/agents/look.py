"""A sample of the monitor, as its line says it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from dr_ctl.core.clock import stamp
from dr_ctl.core.document import HIDDEN, derived, key
from dr_ctl.core.model import Role
from dr_ctl.core.printable import if_known
from dr_ctl.topologies.topology import Snapshot


@dataclass(frozen=True, slots=True)
class Look:
    """A sample. `outflows` holds None where one was not read. `trouble` is a fault of the history; `waiting` and
    `dropped` count the rows affected."""

    __pydantic_config__: ClassVar = {"arbitrary_types_allowed": True}

    at: datetime = field(metadata=key("ts"))
    roles: Mapping[str, Role]
    outflows: Mapping[str, int | None]
    snapshot: Snapshot = field(metadata=HIDDEN)
    trouble: str | None = field(default=None, metadata=HIDDEN)
    waiting: int = field(default=0, metadata=HIDDEN)
    dropped: int = field(default=0, metadata=HIDDEN)

    @derived
    def history(self) -> dict[str, str | int | None]:
        return {"trouble": self.trouble, "waiting": self.waiting, "dropped": self.dropped}

    @property
    def line(self) -> str:
        parts = [f"{site} {role.value}, {if_known(self.outflows[site])} to ship" for site, role in self.roles.items()]
        return f"{stamp(self.at)}  " + "; ".join(parts)
