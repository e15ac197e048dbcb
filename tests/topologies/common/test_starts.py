"""Which texts are of one start of a broker."""

import pytest

from dr_ctl.rpo.core.starts import one_of_each, same_start


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("b/178/9", "b/178/9", True),
        ("b/178/9", "b/179/9", True),  # an activation is read a moment earlier or later, on either side of a step
        ("b/99/9", "b/100/9", True),
        ("b/178/9", "b/180/9", False),
        ("b/178/9", "a/178/9", False),
        ("b/178/9", "b/178/8", False),
        ("178", "179", False),  # a single process has one start
        ("b/178/9", "178", False),
        (None, "178", False),
        (None, None, True),
    ],
)
def test_the_moment_of_an_activation_has_a_tolerance(one: str | None, other: str | None, is_same: bool) -> None:
    assert same_start(one, other) is same_start(other, one) is is_same
    if one is not None and other is not None:
        assert (len({*one_of_each([other, "b", one]).values()} - {"b"}) == 1) is is_same
