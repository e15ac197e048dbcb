"""Asks the person at the terminal. Where there is none nothing is asked, and that is no yes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import typer

from dr_ctl.engine.executor import Answer
from dr_ctl.engine.plan import PlannedStep

T = TypeVar("T")


def present() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def says_yes(sentence: str) -> bool:
    """Ask for a yes; False where nobody can be asked, or the person hung up."""
    return present() and bool(_answer(lambda: typer.confirm(sentence, err=True)))


def names(question: str, wanted: str) -> bool:
    """Ask for a name to be typed: more than a key pressed in a hurry."""
    told = _answer(lambda: typer.prompt(question, err=True, default="", show_default=False))
    return told is not None and told.strip() == wanted


def stepwise(step: PlannedStep, may_undo: bool) -> Answer:
    """Ask before a step. Who hangs up stops here: nothing is done that nobody said."""
    choices = {"y": Answer.YES, "s": Answer.STOP} | ({"u": Answer.UNDO} if may_undo else {})
    undo = ", [u]ndo all and end" if may_undo else ""
    question = f"{step.number}. {step.verb}: {step.about}\n    [y]es{undo}, [s]top here"
    while True:
        told = _answer(lambda: typer.prompt(question, err=True, default="", show_default=False))
        if told is None:
            return Answer.STOP
        if (answer := choices.get(told.strip().lower()[:1])) is not None:
            return answer


def _answer(question: Callable[[], T]) -> T | None:
    """What was answered; None where the person hung up."""
    try:
        return question()
    except typer.Abort:
        return None
