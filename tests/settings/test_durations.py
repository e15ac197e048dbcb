"""Durations as people write and read them."""

from __future__ import annotations

import pytest

from dr_ctl.settings.durations import duration, seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("20ms", 0.02),
        ("0s", 0.0),
        ("5s", 5.0),
        ("1.5s", 1.5),
        ("1m", 60.0),
        ("2h", 7200.0),
        ("30d", 2_592_000.0),
        (" 5 s ", 5.0),
    ],
)
def test_a_duration_is_a_number_with_its_unit(text: str, value: float) -> None:
    assert seconds(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "told", ["", "5", 5, 0, None, True, "s", "-5s", "1e3s", ".5s", "5.s", "5 sec", "1m30s", "5S", "5s\nx"]
)
def test_anything_else_is_refused_with_the_remedy(told: object) -> None:
    with pytest.raises(ValueError, match="write a number with its unit, as in 20ms, 5s, 1m, 2h or 30d"):
        seconds(told)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 ms"),
        (0.0214, "21 ms"),
        (1.0, "1.00 s"),
        (9.994, "9.99 s"),
        (12.3, "12 s"),
        (60.0, "1 min 0 s"),
        (61.4, "1 min 1 s"),
        (3599.0, "59 min 59 s"),
        (3600.0, "1 h 0 min"),
        (90_061.0, "25 h 1 min"),
    ],
)
def test_seconds_are_told_in_the_unit_that_suits(value: float, text: str) -> None:
    assert duration(value) == text
