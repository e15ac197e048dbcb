"""Each question of a post knows its own answer, whatever was asked before it; all of them travel together."""

from __future__ import annotations

from contextlib import closing

import pytest

from dr_ctl.jolokia.client import Account, Ask, Listing, Read, Reader, Search, Wire
from dr_ctl.jolokia.errors import NoSuchBean
from dr_ctl.jolokia.post import Post
from tests.jolokia.console import answers, console, value

BEAN = 'org.apache.activemq.artemis:broker="a"'
GONE = {"status": 404, "error": "gone", "error_type": "javax.management.InstanceNotFoundException"}


def test_each_question_has_its_own_answer_and_all_travel_in_one_post() -> None:
    replies = answers(value({"Depth": 7}), value([BEAN]), GONE, value("[]"))
    with console(replies) as server, closing(Wire(Account(server.url, "dr-ctl", "s3cret", server.url))) as wire:
        post = Post()
        depth = post.ask(Read(BEAN, ("Depth",)))
        names = post.ask(Search(f"{BEAN},*"))
        queue = post.ask(Read(f"{BEAN},queue=q", ("Depth",)))
        listed = post.ask(Ask(BEAN, Listing.BROWSE_ALL))
        post.send(Reader(wire))

    assert [[question["type"] for question in body] for body in server.asked] == [["read", "search", "read", "exec"]]
    assert depth.fields().number("Depth") == 7
    assert names.value() == [BEAN]
    assert isinstance(queue.answer().error, NoSuchBean)
    with pytest.raises(NoSuchBean):
        queue.fields()
    assert listed.value() == "[]"


def test_a_question_that_was_not_sent_has_no_answer() -> None:
    asked = Post().ask(Read(BEAN, ("Depth",)))

    with pytest.raises(RuntimeError, match="never sent"):
        asked.value()
