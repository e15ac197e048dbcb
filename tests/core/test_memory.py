"""What is told to the C library and to Arrow about memory that is not used any more."""

from __future__ import annotations

import ctypes
import os
from types import SimpleNamespace

import pytest

from dr_ctl.core import memory


def test_a_c_library_that_has_no_such_options_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())

    memory.give_back()

    assert os.environ.pop("ARROW_DEFAULT_MEMORY_POOL") == "system"


def test_what_a_person_has_set_for_arrow_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=lambda *option: told.append(option)))

    memory.give_back()

    assert os.environ["ARROW_DEFAULT_MEMORY_POOL"] == "mimalloc"
    assert len(told) == 3
