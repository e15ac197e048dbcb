"""The work of one estimate on the frames of a history, from its looks to the cells that all figures are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dr_ctl.rpo.estimate import distribution as d
from dr_ctl.rpo.estimate import looks, notes, scopes, spans
from dr_ctl.rpo.estimate.distribution import Blocks
from dr_ctl.rpo.estimate.facts import Flow, facts
from dr_ctl.rpo.spark import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from dr_ctl.core.model import Finding
    from dr_ctl.rpo.estimate.cells import Cell
    from dr_ctl.rpo.estimate.request import Request

BLOCKS: Final = 24
BLOCKS_OF_A_WEEK: Final = 28
DAY_US: Final = 86_400 * 1_000_000


@dataclass(frozen=True, slots=True)
class Work:
    """The frames of one estimate: the history of all sites, and what is asked of one."""

    rows: DataFrame
    outflows: DataFrame
    site: str
    flows: Sequence[Flow]
    masks: str
    classes: int
    serving: str | None = None  # which site serves at the end, or was the last to

    @classmethod
    def of(cls, rows: DataFrame, asked: Request) -> Work | Finding:
        """Take up what is asked; the finding that says why there is nothing to work on."""
        # Kept as they are from here on: what follows reads them several times, and planning it all anew takes longer.
        outflows = looks.outflow_looks(rows).localCheckpoint()
        known = facts(looks.facts(rows, outflows).collect())
        site = asked.site or known.serving
        flows = [flow for flow in known.flows if flow.site == site]
        if site is None or not flows:
            return notes.nothing_of(site, {flow.site for flow in known.flows})
        classes = [each.queues for each in asked.objectives.classes] if asked.objectives else []
        masks = spans.masks(asked.include, asked.exclude, classes)
        return cls(rows, outflows, site, flows, masks, len(classes), known.serving)

    def by_flow(self) -> DataFrame:
        """Bounds per flow, interval and scope."""
        split = any(flow.is_split for flow in self.flows)
        queues = spans.queue_looks(self.rows, self.outflows, self.site, self.flows, masks=self.masks)
        parts = spans.queue_parts(spans.cut_looks(queues, split=split), self.flows, split=split)
        return scopes.by_flow(
            parts, spans.flow_parts(self.outflows, self.flows, self.site), self.flows, classes=self.classes
        )

    def states(self, by_flow: DataFrame) -> DataFrame:
        return scopes.states(by_flow, self.outflows, self.flows, self.site)

    @property
    def span_us(self) -> tuple[int, int]:
        return min(flow.first_us for flow in self.flows), max(flow.last_us for flow in self.flows)

    def blocks(self) -> Blocks:
        first, last = self.span_us
        return Blocks(first, last, BLOCKS_OF_A_WEEK if last - first >= 7 * DAY_US else BLOCKS)

    def cells(self, *, horizon_us: int, bins: int = 0) -> list[Cell]:
        """All that the figures are made of; with `bins`, a time line for a chart too."""
        by_flow = self.by_flow().localCheckpoint()
        states = self.states(by_flow)
        blocks = self.blocks()
        # A day of the past says what may come; older days were other days.
        past = d.moves(states, blocks, horizon_us=horizon_us, since_us=self.span_us[1] - DAY_US - horizon_us)
        parts = [d.histograms(states, blocks), d.here(by_flow), d.accounted(by_flow), d.last(states), past]
        if bins:
            parts.append(d.timeline(states, d.Blocks(*self.span_us, bins)))
        return d.collected(sql.union(parts))
