"""Traffic of clients on a lab, a twin, or any other stage with pairs, queues and ledgers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack

from dr_ctl.core.system import system
from dr_ctl_lab.lab.traffic import Load, Target

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from dr_ctl_lab.lab.clients.client import Proto
    from dr_ctl_lab.lab.clients.traits import Variation


class Stage(Protocol):
    """The interface of a stage; `target` has the addresses for clients of a pair."""

    @property
    def pairs(self) -> tuple[str, ...]: ...

    @property
    def queues(self) -> tuple[str, ...]: ...

    @property
    def ledgers(self) -> Path: ...

    def target(self, pair: str | None = None) -> Target: ...


class LoadOptions(TypedDict, total=False):
    """Options of `Load`."""

    producers: int
    consumers: int
    work_ms: float
    protocols: Sequence[Proto]
    variations: Collection[Variation]


class Loadable:
    """Adds `load` to a class that is a `Stage`."""

    def load(
        self: Stage,
        rate: float,
        *,
        queues: Sequence[str] | None = None,
        pair: str | None = None,
        **options: Unpack[LoadOptions],
    ) -> Load:
        """Prepare traffic for all queues, or for `queues`, with a ledger in `ledgers`. Without a pair the clients are
        distributed over all pairs."""
        first, *further = [self.target(item) for item in (self.pairs if pair is None else (pair,))]
        path = self.ledgers / f"{system().now():%Y%m%dT%H%M%S.%fZ}.jsonl"
        names = self.queues if queues is None else tuple(queues)
        return Load(first, names, rate, beside=further, ledger_path=path, **options)
