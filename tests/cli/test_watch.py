"""`status --watch`: in place at a terminal, a block or a document a look elsewhere; Ctrl-C ends it well."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable

import pytest

from dr_ctl.core.clock import SystemClock
from dr_ctl.core.errors import Stopped
from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.cli.terminal import at_terminal

LEAST_S = 1.0


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], list[float]]:
    """After so many looks a signal comes; gives the times that were waited for."""

    def stopped(looks: int, signum: int) -> list[float]:
        waits: list[float] = []

        def sleep(clock: SystemClock, seconds: float) -> None:
            if seconds < LEAST_S:
                return  # within a look
            waits.append(seconds)
            if len(waits) == looks:
                raise Stopped(signum)

        monkeypatch.setattr(SystemClock, "sleep", sleep)
        return waits

    return stopped


def test_where_there_is_no_terminal_each_look_is_a_block_with_its_time(
    dr_ctl: Shell, installation: Installation, stop: Callable[[int, int], list[float]]
) -> None:
    waits = stop(3, signal.SIGINT)

    ended = dr_ctl("status", "--watch", "--every", "4s")

    *blocks, last = ended.out.split("\n\n")
    assert (ended.code, last) == (0, "no longer watched, after 3 look(s)\n")
    assert len(blocks) == 3
    for block in blocks:
        first, *rest = block.splitlines()
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first)
        assert (rest[0].split(), rest[-1]) == (["london", "serving"], "london serves")
    assert all(3 < wait <= 4 for wait in waits), "the time of the look is part of the interval"


def test_as_json_each_look_is_a_document_and_the_end_is_one(
    dr_ctl: Shell, installation: Installation, stop: Callable[[int, int], list[float]]
) -> None:
    stop(2, signal.SIGINT)

    ended = dr_ctl("status", "--watch", "--json")

    first, second, last = map(json.loads, ended.out.splitlines())
    assert [each["summary"] for each in (first, second)] == ["london serves"] * 2
    assert (ended.code, last["outcome"], last["data"]) == (0, "ok", {})


def test_another_signal_is_an_interruption(
    dr_ctl: Shell, installation: Installation, stop: Callable[[int, int], list[float]]
) -> None:
    stop(1, signal.SIGTERM)

    assert dr_ctl("status", "--watch").code == 143


@pytest.mark.wire
def test_at_a_terminal_it_is_in_place_and_its_last_look_stays(dr_ctl: Shell, installation: Installation) -> None:
    with at_terminal("status", "--watch", "--every", "100ms") as terminal:
        first = terminal.until("link london attached")
        installation.london.keep_out()
        changed = terminal.until("no site serves; before: london serves")
        terminal.type("\x03")
        code = terminal.ended()

    assert re.search(r"orders: as seen at \d\d:\d\d:\d\d UTC, 0 s ago; every 0.1 s  \(Ctrl-C ends\)", first)
    assert "DR-ROLE-015" in changed, "what is wrong stands above the sites"
    assert code == 0
    before, after = terminal.drawn.split("\x1b[?1049l")
    assert "\x1b[?1049h" in before
    assert "no site serves" in after
    assert re.search(r"no longer watched, after \d+ look\(s\)", after)
    assert "DR-INTERRUPTED" not in terminal.drawn


@pytest.mark.wire
def test_what_does_not_fit_is_counted_and_what_matters_fits(dr_ctl: Shell, installation: Installation) -> None:
    installation.london.keep_out()

    with at_terminal("status", "--watch", rows=8, columns=60) as terminal:
        text = terminal.until("more lines: `dr-ctl status` has all of them")

    assert "no site serves" in text
    assert "DR-ROLE-015" in text
