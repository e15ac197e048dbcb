"""How often is looked while something is waited for."""

from __future__ import annotations

from dr_ctl.engine.ports import Hand


def until_next(hand: Hand, began_s: float, every_s: float) -> None:
    """Wait until so long has passed since the last look began: what it took is part of that. Clients are out for each
    of these waits."""
    hand.wait(max(0.0, began_s + every_s - hand.monotonic()))
