"""What runs note of a serving broker beside its counters, and what an agent is handed of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from dr_ctl.topologies.brokersync import proven
from dr_ctl.topologies.brokersync.sync.accounts import SHOWN, Counters
from dr_ctl.topologies.common.consumed import Consumed, Whole
from tests.topologies.brokersync.views import broker

COPIES = frozenset({"a", "b", "c"})
HERE = Whole("orders", frozenset({"c"}), before=1, after=1)


@pytest.mark.parametrize(("consumed", "to_ship", "is_proven"), [(2, 0, True), (1, 0, False), (2, 1, False)])
def test_copies_go_where_the_counters_cover_all_of_them(consumed: int, to_ship: int, is_proven: bool) -> None:
    """A copy that is still to be shipped may be of a consumed message: it leaves less for the others."""
    serving = broker("london", serves=True, depth=1, to_ship=to_ship, consumed={"orders": consumed})
    found = proven.covered(serving, "orders", COPIES, HERE)
    assert (found.ids if isinstance(found, Consumed) else None) == ({"a", "b"} if is_proven else None)


def test_nothing_goes_while_somebody_holds() -> None:
    serving = broker("london", serves=True, consumed={"orders": 9}, held="an operator")
    assert "an operator" in str(proven.covered(serving, "orders", COPIES, HERE))


def test_an_agent_is_handed_how_a_run_opened_that_start_and_keeps_its_own_memory(tmp_path: Path) -> None:
    documents = tmp_path / "documents"
    proven.note_opening(documents, "paris", "b", "ID:1", {"orders": Counters(35, 0, 40, 2)})
    proven.note(documents, "paris", "b", "ID:1", SHOWN, "orders", 7)

    handed = proven.for_agent(documents, "paris", {})

    opened = {"opened": {"orders": [35, 40, 2]}}
    assert handed == {"b": {"start": "ID:1", "shown": {"orders": 42}, "handed": opened}}
    own = {"b": {"start": "ID:1", "shown": {"orders": 1}, "handed": opened}}
    assert proven.for_agent(documents, "paris", own) == own
    assert proven.for_agent(documents, "paris", {"b": {"start": "ID:1", "shown": {"orders": 1}}}) == handed
    assert proven.for_agent(documents, "london", {}) == {}


def test_what_was_noted_of_another_start_counts_no_more(tmp_path: Path) -> None:
    documents = tmp_path / "documents"
    proven.note(documents, "paris", "b", "ID:1", SHOWN, "orders", 7)
    proven.note(documents, "paris", "b", "ID:2", SHOWN, "orders", 1)
    assert proven.by_runs(documents, "paris", "b", "ID:1") == {}
    assert proven.by_runs(documents, "paris", "b", "ID:2")["shown"] == {"orders": 1}
