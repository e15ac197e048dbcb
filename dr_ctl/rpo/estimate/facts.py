"""What the driver knows of a history before the long work: its outflows, and which site serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dr_ctl.core.model import Role

if TYPE_CHECKING:
    from collections.abc import Iterable

GAP_POLLS: Final = 5
"""An interval longer than this many usual ones is a gap: not covered time."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One outflow over the whole history. Rates in things per second; None where no interval tells."""

    site: str
    pair: str
    flow: str
    first_us: int
    last_us: int
    looks: int
    last_n: int
    spacing_us: int | None
    sends_rate: float | None
    acks_rate: float | None
    put_rates: tuple[float, ...] | None
    is_mixed: bool
    has_acks: bool

    @property
    def gap_us(self) -> int:
        return GAP_POLLS * (self.spacing_us or 0)

    @property
    def is_split(self) -> bool:
        """It carries acknowledgements, and not in one stream with the messages."""
        return self.has_acks and not self.is_mixed


@dataclass(frozen=True, slots=True)
class Facts:
    flows: tuple[Flow, ...]
    serving: str | None


def facts(rows: Iterable[Any]) -> Facts:
    """Take what `looks.facts` collected."""
    flows: list[Flow] = []
    roles: list[tuple[str, str, int]] = []
    for row in rows:
        told = row.asDict()
        role = told.pop("role")
        if role is not None:
            roles.append((row.site, role, row.last_us))
        else:
            rates = told["put_rates"]
            flows.append(Flow(**{**told, "put_rates": None if rates is None else tuple(rates)}))
    return Facts(tuple(sorted(flows, key=lambda flow: (flow.site, flow.pair, flow.flow))), serving(roles))


def serving(seen: Iterable[tuple[str, str, int]]) -> str | None:
    """Pick the site whose newest role is serving; failing that, the one seen serving last."""
    newest: dict[str, tuple[int, str]] = {}
    served: dict[str, int] = {}
    for site, role, last in seen:
        newest[site] = max(newest.get(site, (last, role)), (last, role))
        if role == Role.SERVING.value:
            served[site] = last
    serves_now = {site: last for site, last in served.items() if newest[site][1] == Role.SERVING.value}
    candidates = serves_now or served
    return max(candidates, key=lambda site: candidates[site], default=None)
