"""The output of each scenario equals its file. `pytest tests/scenarios --accept` writes the present output."""

import difflib
from pathlib import Path

import pytest

from tests.scenarios.runner import play, written
from tests.scenarios.stage import Unmet

FOLDER = Path(__file__).parent
SCENARIOS = [
    pytest.param(path, id=path.stem, marks=pytest.mark.deep if path.parent.name == "deep" else ())
    for path in sorted(FOLDER.glob("**/*.txt"))
]


@pytest.mark.parametrize("path", SCENARIOS)
def test_it_is_as_written(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text(encoding="utf-8")
    shown = written(play(path))
    if request.config.getoption("--accept"):
        path.write_text(shown, encoding="utf-8")
        return
    differ = difflib.unified_diff(text.splitlines(), shown.splitlines(), str(path), "as played", lineterm="", n=3)
    assert shown == text, "\n".join(["`pytest tests/scenarios --accept` where this is meant", *differ])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", ":1: the first line says"),
        ("$ dr-ctl status", ":1: the first line says"),
        ("# It is quiet.\nput 3 orders.in at london", "no command is typed"),
        ("# It is quiet.\n> ok", ":2: belongs to no command"),
        ("# It is quiet.\n\n    ok", ":3: belongs to no file"),
        *(
            (f"# It is quiet.\n{line}\n$ dr-ctl status", why)
            for line, why in (
                ("london burns", ":2: london burns: no line of a scenario"),
                ("lose rome", "rome"),
                ("london refuses stop clients", "has not happened by the end"),
                ("fault at london: error at stop clients", "has not happened by the end"),
                ("answer paris", "has not happened by the end"),
                ("before paris start clients: lose london", "has not happened by the end"),
            )
        ),
    ],
)
def test_a_file_that_does_not_parse_and_what_does_not_come_about_is_told_with_its_line(
    tmp_path: Path, text: str, why: str
) -> None:
    path = tmp_path / "one.txt"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(Unmet, match=f"{path}:") as raises:
        play(path)

    assert why in str(raises.value)
