"""Places a run's view on one self-contained HTML page: no script, nothing loaded, everything escaped."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from dr_ctl.engine.runs import RunFiles, write_text
from dr_ctl.report.forecast import COLUMNS
from dr_ctl.report.reading import read_run
from dr_ctl.report.view import Page, view

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

    from dr_ctl.report.history_page import HistoryPage
    from dr_ctl.report.index_page import IndexPage


def write_report(files: RunFiles) -> Path:
    """Write the report of one run, whatever state it was left in, and say where it is."""
    write_text(files.report, render(view(read_run(files))))
    return files.report


def write_page(path: Path, page: HistoryPage, method: HistoryPage | None) -> None:
    """Write the page of an estimate, and that of its method beside it; each leads to the other. Raises
    OSError."""
    template, style = _loaded("history.html.j2")
    if method is not None:
        beside = path.with_name(f"{path.stem}-method{path.suffix}")
        back = replace(method, other=(quote(path.name), page.title))
        write_text(beside, template.render(page=back, style=style, columns=COLUMNS))
        page = replace(page, other=(quote(beside.name), "How sure that is, and how the figures are made"))
    write_text(path, template.render(page=page, style=style, columns=COLUMNS))


def write_index(path: Path, page: IndexPage) -> None:
    """Write the page over all runs. Raises OSError."""
    template, style = _loaded("index.html.j2")
    write_text(path, template.render(page=page, style=style))


def render(page: Page) -> str:
    """Make the page's HTML."""
    template, style = _loaded("page.html.j2")
    return template.render(page=page, style=style, columns=COLUMNS)


@cache
def _loaded(name: str) -> tuple[Template, str]:
    # Here and not above: every command imports this module, few write a report.
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # noqa: PLC0415

    here = resources.files("dr_ctl.report")
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(lambda each: _text(here, each)),
    )
    environment.filters |= {"pieces": pieces, "printed": printed}
    # The style goes through the same escaping as all else, so it holds none of the characters that escaping changes.
    return environment.get_template(name), _text(here, "page.css")


def _text(here: resources.abc.Traversable, name: str) -> str:
    return here.joinpath(name).read_text(encoding="utf-8")


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
