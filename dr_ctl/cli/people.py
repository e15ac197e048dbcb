"""Asks the person at the terminal about a plan. Without a terminal nothing is asked, and no answer is no yes."""

import shlex
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import typer

from dr_ctl.cli.output import finding_text, folded
from dr_ctl.cli.plans import plan_text
from dr_ctl.core.notation import line, page
from dr_ctl.engine.executor import Answer
from dr_ctl.engine.operations import AT_SOURCE, FAILBACK, REINSTATE, SINGLE_STEPS
from dr_ctl.engine.plan import Plan, PlannedStep

T = TypeVar("T")


def _question(plan: Plan) -> tuple[str, str]:
    operation = plan.spec.operation
    named = plan.source if operation in AT_SOURCE else plan.target
    if operation in SINGLE_STEPS:
        what = f"{operation.capitalize()} {'of' if operation in AT_SOURCE else 'to'} {named}"
    elif operation == REINSTATE:
        what = f"Reinstate {named}"
    elif operation == FAILBACK:
        what = f"Reinstate {named}, then move to it from {plan.source}, as `swapover` does"
    else:
        what = f"Move from {plan.source} to {named}"
    return what, named


class Terminal:
    def present(self) -> bool:
        return sys.stdin.isatty() and sys.stderr.isatty()

    def says_yes(self, sentence: str) -> bool:
        """Ask a person; False also if nobody can be asked, or the person hung up."""
        return self.present() and bool(_answer(lambda: typer.confirm(line(sentence), err=True)))

    def secret(self, sentence: str) -> str | None:
        if not self.present():
            return None
        return _answer(
            lambda: str(typer.prompt(line(sentence), hide_input=True, err=True, default="", show_default=False))
        )

    def agrees(self, plan: Plan, cost: str) -> bool:
        """Ask for a typed name, so that no single key confirms a plan."""
        what, wanted = _question(plan)
        question = f"{what}: {cost}." if cost else f"{what}?"
        return _named(plan, question, wanted, "to go on")

    def approves(self, plan: Plan) -> bool:
        if options := plan.spec.typed():
            typer.echo(line(f"Asked with {shlex.join(options)}"), err=True)
        return _named(plan, f"Sign this plan to {plan.target}?", plan.target, "to sign it")

    def stepwise(self, step: PlannedStep, may_undo: bool, /) -> Answer:
        """Ask before a step. A person who hangs up stops the run here; a no asks what to do instead."""
        undo = "[u]ndo all and end, " if may_undo else ""
        choices = {"y": Answer.YES, "s": Answer.STOP} | ({"u": Answer.UNDO} if may_undo else {})
        text = page((f"{step.number}. {step.verb}: {step.summary}", f"    [y]es, {undo}[s]top here"))
        while True:
            typed = _typed(text)
            if typed is None:
                return Answer.STOP
            key = typed.strip().lower()[:1]
            if (answer := choices.get(key)) is not None:
                return answer
            if key == "n":
                text = f"    Then {undo}[s]top here, or [y]es after all"


def show(plan: Plan, *questions: str) -> None:
    for text in (plan_text(plan), *map(finding_text, plan.findings), *questions):
        typer.echo(folded(text, sys.stderr), err=True)


def _named(plan: Plan, question: str, wanted: str, purpose: str) -> bool:
    """Show a plan, and ask for a name; the question is right above the typed line."""
    show(plan, line(question))
    text = f"Type `{wanted}` {purpose}"
    typed = _typed(text)
    return typed is not None and typed.strip() == wanted


def _typed(text: str) -> str | None:
    return _answer(lambda: str(typer.prompt(folded(text, sys.stderr), err=True, default="", show_default=False)))


def _answer(question: Callable[[], T]) -> T | None:
    """Return the answer, None if the person hung up. Text that was typed before the question is no answer."""
    with suppress(OSError, ValueError, termios.error):  # without a terminal no text waits
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    try:
        return question()
    except typer.Abort:
        return None
