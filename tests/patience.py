"""Lets the commands of a test wait for less than they do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dr_ctl.core.patience import Patience
from dr_ctl.topologies.common import observer


def impatient(monkeypatch: pytest.MonkeyPatch, **less: Any) -> Patience:
    """Whoever observes is told so; acts ask the observer. What an earlier call made shorter stays so."""
    brief = replace(observer.Patience(), **less)
    monkeypatch.setattr(observer, "Patience", lambda: brief)
    return brief
