"""The rule of mypy that no text is made of a value that may be None: it sees what it is for."""

import re
from pathlib import Path

from mypy import api

ROOT = Path(__file__).parents[1]
REFUSED = ('f"{count} messages"', 'f"{name}: {row[name]}"', 'f"{row.get(name)}"', '"{}".format(count)')
ALLOWED = ('f"{count or 0} messages"', 'f"{name!r}"', '"" if count is None else f"{count} of {name}"')
TEXT = "def told(count: int | None, name: str, row: dict[str, int | None]) -> list[str]:\n    return [\n{}\n    ]\n"


def test_a_text_of_what_may_be_none_is_refused(tmp_path: Path) -> None:
    module, settings = tmp_path / "dr_ctl" / "made.py", tmp_path / "mypy.ini"
    module.parent.mkdir()
    module.write_text(TEXT.format(",\n".join(REFUSED + ALLOWED)), encoding="utf-8")
    settings.write_text(f"[mypy]\nplugins = {ROOT / 'tests' / 'no_none.py'}\n", encoding="utf-8")

    out, err, _ = api.run(["--config-file", str(settings), "--no-site-packages", str(module)])

    wrong = [int(number) for number in re.findall(r":(\d+): error: a text is made of a value that may be None", out)]
    assert wrong == [3, 4, 5, 6], out + err
    assert out.count("error:") == len(wrong), out
