"""Screens of work in progress: the events of a run, on standard error, and `status --watch`.

A run's screen always shows the present step, whether stopping is still safe, and the state of a wait. On a terminal the
line of a wait is renewed in place, and the status too, with problems at its top; elsewhere lines are plain, and a
status is a block, or a document, for each reading.
"""

from __future__ import annotations

import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final

import typer
from rich.console import Console
from rich.live import Live
from rich.status import Status
from rich.text import Text

from dr_ctl import cli
from dr_ctl.application.result import Result
from dr_ctl.cli.output import as_line, findings_and_debts, folded, has_reader, text_of, to_the_second
from dr_ctl.core.document import stamp
from dr_ctl.core.errors import Stopped
from dr_ctl.core.model import MARKS, ExitCode, Severity
from dr_ctl.core.notation import duration, line
from dr_ctl.core.system import boottime_s, system
from dr_ctl.telemetry.events import Event, Notice, StepEnded, StepStarted, WaitProgress

if TYPE_CHECKING:
    from dr_ctl.cli.session import Session

_PLAIN_EVERY_S = 1.0
_STYLES = {"done": "green", "not needed": "dim", "refused": "red", "unknown": "yellow"}


class Screen:
    """Shows events as they come. Standard error never raises (`LastingStream`): a closed terminal stops no run."""

    def __init__(self, *, color: bool) -> None:
        self._console = Console(file=sys.stderr, no_color=not color, highlight=False, markup=False, soft_wrap=True)
        self._status: Status | None = None
        self._said_at = float("-inf")

    def __call__(self, event: Event) -> None:
        match event:
            case StepStarted():
                safe = "Ctrl-C undoes" if event.safe_to_stop else "do not stop"
                self._print(f"[{event.number}/{event.of}] {event.verb}: {event.summary}  ({safe})", style="bold")
            case StepEnded():
                if self._status is not None:
                    self._status.stop()
                    self._status = None
                took = f"  ({duration(event.took_s)})" if event.took_s >= 0.001 else ""  # noqa: PLR2004
                undone = f"{event.verb}: " if event.verb.startswith("undo ") else ""
                self._print(f"    {undone}{event.outcome}: {event.text}{took}", style=_STYLES[event.outcome])
            case WaitProgress():
                self._wait(event)
            case Notice():
                self._print(f"    {event.text}", style="yellow")

    def _wait(self, event: WaitProgress) -> None:
        text = f"    {event.subject}"
        if event.depth is not None or event.left_s is None:
            text += f": {'not known' if event.depth is None else event.depth}"
        if event.rate is not None and round(event.rate):
            text += f", {event.rate:.0f}/s" if event.rate > 0 else f", growing by {-event.rate:.0f}/s"
        if event.left_s is not None:
            text += f", {duration(event.left_s)} to go"
        if event.outage_s is not None:
            text += f"; clients out for {event.outage_s:.1f} s"
        if event.why_not_moving:
            text += f"; {event.why_not_moving}"
        if self._console.is_terminal:
            if self._status is None:
                self._status = self._console.status(line(text))
                self._status.start()
            else:
                self._status.update(line(text))
        elif boottime_s() - self._said_at >= _PLAIN_EVERY_S:
            self._said_at = boottime_s()
            self._print(text)

    def _print(self, text: str, style: str | None = None) -> None:
        self._console.print(folded(to_the_second(line(text)), sys.stderr), style=style)


@contextmanager
def status_line(*, color: bool, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show on a terminal a line with the work in progress; elsewhere show nothing."""
    console = Console(file=sys.stderr, no_color=not color, highlight=False, markup=False)
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    with console.status("") as status:
        yield lambda text: status.update(line(text))


EVERY_S: Final = 2.0
_REFRESHED: Final = 4  # times a second: the age of a reading grows on the screen
_MARKED: Final = {MARKS[Severity.ERROR]: "bold red", MARKS[Severity.WARNING]: "yellow", " $": "yellow"}


def watch(session: Session, site: str | None, every_s: float) -> Result:
    """Show each reading, until the reader goes away, or Ctrl-C, which is a good end."""
    readings, watched = 0, _Watched(session, every_s)
    try:
        while has_reader():
            began = system().monotonic()
            watched.show(cli.show.status(session, site), system().now())
            readings += 1
            system().sleep(max(0.0, every_s - (system().monotonic() - began)))
    except Stopped as stopped:
        if stopped.signum != signal.SIGINT:
            raise
    finally:
        watched.close()
    return Result(ExitCode.OK, f"no longer watched, after {readings} reading(s)")


class _Watched:
    """Shows the newest reading in place on a terminal, where the last one stays; elsewhere one below the other."""

    def __init__(self, session: Session, every_s: float) -> None:
        # Problems of the settings must be reported before the screen is taken.
        self._about = session.installation().settings.name
        self._session, self._every_s = session, every_s
        self._last: tuple[Result, datetime] | None = None
        self._changes: deque[str] = deque(maxlen=3)
        self._console = Console(file=sys.stdout, no_color=not session.color, highlight=False, markup=False)
        self._live = Live(
            console=self._console, screen=True, refresh_per_second=_REFRESHED, get_renderable=self._screenful
        )
        self._in_place = sys.stdout.isatty() and not session.json
        if self._in_place:
            self._live.start()

    def show(self, result: Result, at: datetime) -> None:
        if not self._in_place:
            document = as_line(result.envelope(self._session.command)) if self._session.json else None
            typer.echo(document or f"{stamp(at)}\n{text_of(result)}\n")
            return
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
        """Draw the summary, problems, changes, then the sites, as far as they fit; count the lines left out."""
        styled = [Text(to_the_second(text), _MARKED.get(text[:2], "")) for text in self._lines()]
        wrapped = Text("\n").join(styled).wrap(self._console, self._console.width)
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
        age_s = max(0.0, (system().now() - at).total_seconds())
        yield (
            f"{self._about}: as seen at {at:%H:%M:%S} UTC, {age_s:.0f} s ago; every {self._every_s:g} s  (Ctrl-C ends)"
        )
        yield line(result.summary)
        yield ""
        for part in findings_and_debts(result):
            yield from part.split("\n")
        if self._changes:
            yield "Changes since the watch began:"
            yield from (f"  {change}" for change in self._changes)
        yield from map(line, result.text.split("\n"))
