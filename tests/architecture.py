"""The list of rooms in docs/architecture.md, made of the first sentence of every module.

python -m tests.architecture
"""

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
_MADE = re.compile(r"(<!-- made: rooms -->\n).*?(<!-- end -->)", re.DOTALL)
_SENTENCE = re.compile(r"(.+?[.:])(?:\s|$)", re.DOTALL)


def rooms() -> str:
    """A heading for every package that is listed, and a line for each of its modules."""
    return "\n".join(_lines())


def rewritten(page: str) -> str:
    return _MADE.sub(lambda part: f"{part[1]}{rooms()}\n{part[2]}", page)


def _lines() -> Iterator[str]:
    packages = [path.parent for root in ("dr_ctl", "dr_ctl_lab") for path in (ROOT / root).rglob("__init__.py")]
    for package in sorted(packages):
        place = package.relative_to(ROOT)
        modules = [path for path in sorted(package.glob("*.py")) if path.stem != "__init__"]
        if not modules or place.parts == ("dr_ctl",):
            continue
        yield f"**`{place}/`**: {_first_sentence(package / '__init__.py')}"
        yield ""
        for path in modules:
            text = f"- `{path.name}`: {_first_sentence(path)}"
            yield textwrap.fill(text, 120, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
        yield ""


def _first_sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    text = " ".join(docstring.partition("\n\n")[0].split())
    found = _SENTENCE.match(f"{text} ")
    sentence = found[1] if found is not None and len(found[1]) > 30 else text
    return f"{sentence.rstrip('.:')}."


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
