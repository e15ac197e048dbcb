"""Documents in filters: what is written is what is read, whatever stands in it."""

from __future__ import annotations

import pytest

from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.artemis.document_queue import CREATE_FILTERED, created
from dr_ctl.topologies.continuity.document_queue import InFilter

PAPERS = InFilter("continuity.cmd")


@pytest.mark.parametrize("text", ["", '{"a": "it\'s"}', "''", "'", 'ü\n"x"', "dr_ctl_says = 'x'"])
def test_what_is_written_is_read_back(text: str) -> None:
    _, arguments = PAPERS.create("dr-ctl.lock.paris.3", text, kind="dr-ctl.lock.paris")
    assert PAPERS.text(Fields("a queue", {"Filter": arguments[3]})) == text
    assert PAPERS.text(Fields("a queue", {"Filter": PAPERS.update("q", text, kind="k")[1][2]})) == text


def test_a_filter_of_anybody_else_is_no_text() -> None:
    assert PAPERS.text(Fields("a queue", {"Filter": "colour = 'red'"})) == ""
    assert PAPERS.text(Fields("a queue", {"Filter": None})) == ""


@pytest.mark.parametrize("operation", [PAPERS.create("dr-ctl.a", "x"), PAPERS.keep("dr-ctl.a")])
def test_no_durable_queue_of_ours_becomes_a_flow(operation: tuple[str, tuple[object, ...]]) -> None:
    """The plugin makes one of each durable queue unless its address contains its own command prefix."""
    address, _, _, _, durable, *_ = operation[1]
    assert durable is True
    assert "continuity.cmd" in str(address)


def test_the_queue_of_the_probe_is_not_durable() -> None:
    operation, arguments = PAPERS.probe("dr-ctl.probe.paris")
    assert arguments[4] is False
    assert created(operation, arguments) == "dr-ctl.probe.paris"
    assert operation == CREATE_FILTERED
