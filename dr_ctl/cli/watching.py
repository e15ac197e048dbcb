"""`status --watch`: the status again and again, until Ctrl-C. On a terminal in place, with what matters at its top;
else a block, or a document, for each look."""

import signal
import sys
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from typing import Final, Protocol

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from dr_ctl.application.result import Result
from dr_ctl.cli import show
from dr_ctl.cli.render import as_line, findings_and_debts, text_of
from dr_ctl.cli.session import Session
from dr_ctl.cli.streams import has_reader
from dr_ctl.core.errors import Stopped
from dr_ctl.core.model import MARKS, ExitCode, Severity
from dr_ctl.core.notation import line
from dr_ctl.core.system import stamp

EVERY_S: Final = 2.0
_REFRESHED: Final = 4  # times a second: the age of a look is seen to grow while the next one takes long
_CHANGES: Final = 3
_STYLES: Final = {MARKS[Severity.ERROR]: "bold red", MARKS[Severity.WARNING]: "yellow", " $": "yellow"}


class View(Protocol):
    def show(self, result: Result, at: datetime) -> None: ...

    def close(self) -> None: ...


def watch(session: Session, every_s: float) -> Result:
    """Show each look. The reader who goes away, or Ctrl-C, ends the command well."""
    session.installation()  # what is wrong with the settings is said before the screen is taken
    on_screen = sys.stdout.isatty() and not session.json
    view: View = _Screen(session, every_s) if on_screen else _Blocks(session)
    looks, clock = 0, session.clock
    try:
        while has_reader():
            began = clock.monotonic()
            view.show(show.status(session), clock.now())
            looks += 1
            clock.sleep(max(0.0, every_s - (clock.monotonic() - began)))
    except Stopped as stopped:
        if stopped.signum != signal.SIGINT:
            raise
    finally:
        view.close()
    return Result(ExitCode.OK, f"no longer watched, after {looks} look(s)")


class _Blocks:
    """For a pipe or a file: nothing is taken back."""

    def __init__(self, session: Session) -> None:
        self._json, self._command = session.json, session.command

    def show(self, result: Result, at: datetime) -> None:
        typer.echo(as_line(result.envelope(self._command)) if self._json else f"{stamp(at)}\n{text_of(result)}\n")

    def close(self) -> None:
        """There is nothing to put back."""


class _Screen:
    """For a terminal: the newest look in place. Its last one stays there when the watch ends."""

    def __init__(self, session: Session, every_s: float) -> None:
        self._clock, self._every_s = session.clock, every_s
        self._about = session.installation().settings.name
        self._last: tuple[Result, datetime] | None = None
        self._changes: deque[str] = deque(maxlen=_CHANGES)
        self._console = Console(file=sys.stdout, no_color=not session.color, highlight=False, markup=False)
        self._live = Live(
            console=self._console, screen=True, refresh_per_second=_REFRESHED, get_renderable=self._screenful
        )
        self._live.start()

    def show(self, result: Result, at: datetime) -> None:
        if self._last is not None and self._last[0].summary != result.summary:
            self._changes.append(f"{at:%H:%M:%S}  {line(result.summary)}; before: {line(self._last[0].summary)}")
        self._last = result, at
        self._live.refresh()

    def close(self) -> None:
        self._live.stop()
        if self._last is not None:
            result, at = self._last
            typer.echo(f"{stamp(at)}\n{text_of(result)}")

    def _screenful(self) -> Text:
        """What fits: the summary, what is wrong, the last changes, then the sites; how much is left out is said."""
        lines = [*self._lines()]
        wrapped = Text("\n").join(map(_styled, lines)).wrap(self._console, self._console.width)
        height = self._console.height
        if len(wrapped) > height:
            left_out = Text(f"… {len(wrapped) - height + 1} more lines: `dr-ctl status` has all of them", "dim")
            return Text("\n").join([*wrapped[: height - 1], left_out])
        return Text("\n").join(wrapped)

    def _lines(self) -> Iterator[str]:
        if self._last is None:
            yield f"{self._about}: looking for the first time …  (Ctrl-C ends)"
            return
        result, at = self._last
        age_s = max(0.0, (self._clock.now() - at).total_seconds())
        yield (
            f"{self._about}: as seen at {at:%H:%M:%S} UTC, {age_s:.0f} s ago; every {self._every_s:g} s  (Ctrl-C ends)"
        )
        yield line(result.summary)
        yield ""
        for part in findings_and_debts(result):
            yield from part.split("\n")
        if self._changes:
            yield "Changes since the watch began:"
            yield from (f"  {each}" for each in self._changes)
        yield from (line(each) for each in result.text.split("\n"))


def _styled(text: str) -> Text:
    return Text(text, _STYLES.get(text[:2], ""))
