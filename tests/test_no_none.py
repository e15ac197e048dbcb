"""The rule of mypy that no text is made of a value that may be None: it sees what it is for."""

from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[1]
WRONG = """
def told(count: int | None, name: str, row: dict[str, int | None]) -> list[str]:
    sure = "" if count is None else f"{count} of {name}"
    return [sure, f"{name}", {made}]
"""


@pytest.mark.parametrize(
    ("made", "refused"),
    [
        ('f"{count} messages"', True),
        ('f"{name}: {row[name]}"', True),
        ('f"{row.get(name)}"', True),
        ('"{}".format(count)', True),
        ('f"{count or 0} messages"', False),
        ('f"{name!r}"', False),
    ],
)
def test_a_text_of_what_may_be_none_is_refused(tmp_path: Path, made: str, refused: bool) -> None:
    module = tmp_path / "dr_ctl" / "made.py"
    module.parent.mkdir()
    module.write_text(WRONG.replace("{made}", made), encoding="utf-8")
    settings = tmp_path / "mypy.ini"
    settings.write_text(f"[mypy]\nplugins = {ROOT / 'tests' / 'no_none.py'}\n", encoding="utf-8")

    out, err, code = api.run(["--config-file", str(settings), "--no-site-packages", str(module)])

    assert (code != 0, "a text is made of a value that may be None" in out) == (refused, refused), out + err
