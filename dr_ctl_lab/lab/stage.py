"""Where clients can be let loose: on a lab, or on whatever else has pairs, queues and a place for ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack

from dr_ctl.core.system import system
from dr_ctl_lab.lab.traffic import Load, Target

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from dr_ctl_lab.lab.clients.client import Speaks
    from dr_ctl_lab.lab.clients.traits import Odd


class Stage(Protocol):
    """A stage as traffic needs to know it; `target` is where the clients of a pair may be served."""

    @property
    def pairs(self) -> tuple[str, ...]: ...

    @property
    def queues(self) -> tuple[str, ...]: ...

    @property
    def ledgers(self) -> Path: ...

    def target(self, pair: str | None = None) -> Target: ...


class LoadOptions(TypedDict, total=False):
    """How clients behave: `work_ms` is what a consumer needs for each message; the rest is as in `Load`."""

    producers: int
    consumers: int
    work_ms: float
    protocols: Sequence[Speaks]
    odd: Collection[Odd]


class Played:
    """A base that makes a stage of a class with all that."""

    def load(
        self: Stage,
        rate: float,
        *,
        queues: Sequence[str] | None = None,
        pair: str | None = None,
        **options: Unpack[LoadOptions],
    ) -> Load:
        """Prepare traffic for all its queues, or for those; the ledger goes under `ledgers`. Without a pair the clients
        are dealt out over all of them."""
        first, *beside = [self.target(item) for item in (self.pairs if pair is None else (pair,))]
        path = self.ledgers / f"{system().now():%Y%m%dT%H%M%S.%fZ}.jsonl"
        names = self.queues if queues is None else tuple(queues)
        return Load(first, names, rate, beside=beside, ledger_path=path, **options)
