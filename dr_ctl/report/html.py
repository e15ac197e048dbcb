"""Places a page's values in its template. The HTML file stands alone, without a script, and everything is escaped."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from dr_ctl.engine.record import read_run
from dr_ctl.engine.runs import RunFiles, write_text
from dr_ctl.report.estimate_page import COLUMNS, EstimatePage
from dr_ctl.report.run_page import RunPage
from dr_ctl.report.values import clock, seconds

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from dr_ctl.report.index_page import IndexPage


def write_report(files: RunFiles) -> Path:
    """Write the report of one run in any state, and return its path."""
    write_text(files.report, render(RunPage(read_run(files))))
    return files.report


def render(page: RunPage | EstimatePage | IndexPage) -> str:
    return _environment().get_template(page.template).render(page=page)


@cache
def _environment() -> Environment:
    # Here and not above: every command imports this module, few write a report.
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=PackageLoader("dr_ctl.report", ""),
    )
    environment.filters |= {"pieces": pieces, "printed": printed, "clock": clock, "seconds": seconds}
    # The style goes through the same escaping as all else, so it holds none of the characters that escaping changes.
    style = resources.files("dr_ctl.report").joinpath("page.css").read_text(encoding="utf-8")
    environment.globals |= {"style": style, "columns": COLUMNS}
    return environment


def pieces(sentence: str) -> list[tuple[bool, str]]:
    """Split a sentence at its backticks; true marks what stood between two of them."""
    parts = sentence.split("`")
    if len(parts) % 2 == 0:  # an odd backtick is only a character
        return [(False, sentence)]
    return [(place % 2 == 1, part) for place, part in enumerate(parts) if part]


def printed(name: str) -> Markup:
    """A name for the foot of each printed page; empty where it holds what a style sheet would read."""
    from markupsafe import Markup  # noqa: PLC0415 - comes with jinja2

    return Markup(name if re.fullmatch(r"[A-Za-z0-9 ._-]+", name) else "")  # noqa: S704 - nothing in it is markup
