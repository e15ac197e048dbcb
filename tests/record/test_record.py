"""The changing calls and ends of every operation on every topology equal the record.

After an intended change, `make record` writes the record again; its diff shows the change.
"""

import difflib
from collections.abc import Iterator

import pytest

from dr_ctl_lab.twin.kinds import MIRROR
from tests.record.files import path_of, play_all, read, write
from tests.twin.conftest import OTHERS
from tests.twin.matrix import OPERATIONS

EVERYWHERE = ("swapover", "failover", "fence", "unfence")  # others are parts of these, or like the mirror's


def cases() -> Iterator[object]:
    for topology in (MIRROR, *OTHERS):
        for operation in OPERATIONS:
            for whole in (False, True):
                quick = not whole and (topology == MIRROR or operation in EVERYWHERE)
                name = f"{topology}-{operation}-{'whole' if whole else 'part'}"
                yield pytest.param(topology, operation, whole, id=name, marks=() if quick else pytest.mark.deep)


@pytest.mark.parametrize(("topology", "operation", "whole"), [*cases()])
def test_it_is_as_recorded(topology: str, operation: str, whole: bool, request: pytest.FixtureRequest) -> None:
    path = path_of(topology, operation)
    recorded = read(path)
    now, failures = play_all(topology, operation, whole=whole)
    if whole and request.config.getoption("--accept"):
        write(path, operation, now)
        recorded = now

    differ = [row for row, body in now.items() if recorded.get(row) != body]
    gone = sorted(recorded.keys() - now.keys()) if whole else []
    differences = [line for name in differ for line in _both(name, recorded.get(name, ""), now[name])]

    assert not failures, "\n".join(failures)
    assert not differ, "\n".join([f"{path.name} of {topology}: `make record` where this is meant", *differences])
    assert not gone, f"recorded, and not played any more: {gone}"


def _both(heading: str, recorded: str, played: str) -> list[str]:
    lines = difflib.unified_diff(
        recorded.splitlines(), played.splitlines(), f"{heading}, as recorded", f"{heading}, as played", lineterm="", n=2
    )
    return ["", *lines]
