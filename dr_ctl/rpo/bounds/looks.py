"""The last minutes of a site as series: its outflows, their cuts, and the queues at those cuts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from dr_ctl.rpo.bounds.things import Thing, things
from dr_ctl.rpo.history.newest import Recent
from dr_ctl.rpo.series.columns import SITE, Columns
from dr_ctl.rpo.series.cut import Outflows
from dr_ctl.rpo.series.envelope import Envelope, envelope


@dataclass(frozen=True, slots=True)
class Looks:
    """`things` by pair, kind and name; the looks at outflows stand at places, by outflow and time."""

    flows: Outflows
    envelope: Envelope
    things: Mapping[tuple[str, str, str], Thing]

    @classmethod
    def of(cls, seen: Recent) -> Self | None:
        if not seen.tables:
            return None
        rows = Columns.of(pa.concat_tables(seen.tables))
        is_mine = np.isin(rows.pair, [rows.word(pair) for pair in seen.pairs]) | (rows.kind == SITE)
        rows = rows.take(np.flatnonzero(is_mine))
        flows = Outflows.of(rows)
        return cls(flows, envelope(rows, flows, lambda _: 1, 1), things(rows))

    def number(self, pair: str, name: str) -> int:
        return self.flows.keys.index((pair, name))

    def place(self, number: int, us: int) -> int | None:
        """The place of the look at an outflow at a moment."""
        place = int(self.flows.at(np.array([number]), np.array([us]))[0])
        return None if place < 0 else place

    def base(self, place: int) -> int | None:
        """The newest look not after the cut that read queues too."""
        flows = self.flows
        earlier = (flows.flow == flows.flow[place]) & (flows.series == flows.series[place])
        earlier &= (flows.us <= flows.sends.cut_us[place]) & (self.envelope.likely.queues[0] > 0)
        places = np.flatnonzero(earlier)
        return int(places[-1]) if len(places) else None
