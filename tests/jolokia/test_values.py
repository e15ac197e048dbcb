"""Values out of an answer are of the type asked for, or an error that names bean and attribute."""

from __future__ import annotations

from typing import Any

import pytest

from dr_ctl.jolokia.errors import BadValue
from dr_ctl.jolokia.values import Fields

ERROR = {".error": True, "error": "No such attribute"}
OLD_ERROR = "ERROR: No such attribute: X (class javax.management.AttributeNotFoundException)"


@pytest.mark.parametrize(
    ("kind", "told", "given"),
    [
        ("number", 0, 0),
        ("number", -1, -1),
        ("flag", False, False),
        ("text", "", ""),
        ("optional_text", None, None),
        ("optional_text", "DLQ", "DLQ"),
        ("mapping", {"port": 61616}, {"port": "61616"}),
    ],
)
def test_a_value_of_the_right_type_is_given(kind: str, told: object, given: object) -> None:
    value = getattr(Fields("bean", {"X": told}), kind)("X")

    assert value == given
    assert type(value) is type(given)


@pytest.mark.parametrize(
    ("kind", "wanted", "bad"),
    [
        ("number", "a whole number", [True, 1.0, "1", None, [], {}, ERROR, OLD_ERROR, float("nan")]),
        ("flag", "true or false", [0, 1, "true", None, [], ERROR, OLD_ERROR]),
        ("text", "a text", [0, True, None, [], ERROR, OLD_ERROR]),
        ("optional_text", "a text", [0, True, [], ERROR, OLD_ERROR]),
        ("mapping", "a mapping", [0, "{}", None, [], ERROR, OLD_ERROR]),
    ],
)
def test_a_value_of_another_type_is_never_given(kind: str, wanted: str, bad: list[Any]) -> None:
    for told in bad:
        with pytest.raises(BadValue, match=f"^bean: X should be {wanted}, but is "):
            getattr(Fields("bean", {"X": told}), kind)("X")


@pytest.mark.parametrize("kind", ["number", "flag", "text", "mapping"])
def test_an_attribute_that_is_missing_is_never_given(kind: str) -> None:
    with pytest.raises(BadValue, match=r"X should be .*, but is None"):
        getattr(Fields("bean", {"Y": 1}), kind)("X")


@pytest.mark.parametrize(
    ("told", "known"),
    [({"X": None}, True), ({"X": 0}, True), ({}, False), ({"X": ERROR}, False), ({"X": OLD_ERROR}, False)],
)
def test_an_attribute_is_known_only_where_the_broker_told_it(told: dict[str, object], known: bool) -> None:
    assert Fields("bean", told).has("X") is known


def test_a_long_value_is_cut_in_the_text_of_its_error() -> None:
    with pytest.raises(BadValue) as caught:
        Fields("bean", {"X": "y" * 10_000}).number("X")

    assert len(str(caught.value)) < 200
