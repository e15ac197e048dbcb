"""What is typed before a question stands on the screen answers nothing."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Shell
from tests.cli.installation import Installation
from tests.cli.terminal import at_terminal

pytestmark = pytest.mark.wire


@pytest.mark.usefixtures("dr_ctl")
def test_a_name_that_was_typed_before_the_question_is_no_yes(installation: Installation) -> None:
    with at_terminal("swapover", "--to", "paris") as terminal:
        terminal.type("paris\n")
        terminal.until("to go on: ")
        terminal.type("\n")

        assert terminal.ended() == 14

    assert installation.changes == []


def test_after_the_question_it_is(dr_ctl: Shell, installation: Installation) -> None:
    with at_terminal("swapover", "--to", "paris") as terminal:
        terminal.type("no\n")
        terminal.until("to go on: ")
        terminal.type("paris\n")

        assert terminal.ended() == 0, terminal.drawn

    assert installation.paris.open
    assert dr_ctl("status").out.endswith("paris serves\n")


@pytest.mark.usefixtures("dr_ctl")
def test_a_step_is_no_answer_to_the_one_before(installation: Installation) -> None:
    with at_terminal("swapover", "--to", "paris", "--step") as terminal:
        terminal.until("to go on: ")
        terminal.type("paris\ny\ny\ny\ny\ny\ny\n")
        terminal.until("[s]top here")
        terminal.type("s\n")

        assert terminal.ended() == 130, terminal.drawn

    assert installation.changes == []
