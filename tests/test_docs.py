"""The documentation keeps up with the code: findings, commands and verbs, none missing and none invented."""

import ast
import re
from pathlib import Path
from string import Formatter

import pytest
from typer.main import get_command

from bench import pages, versions
from dr_ctl.application import explaining
from dr_ctl.cli.app import app
from dr_ctl.core.findings import catalogue
from dr_ctl.core.model import ExitCode, Health
from dr_ctl.engine.runbook import ORDER, load, shipped

ROOT = Path(__file__).parents[1]
KEY = re.compile(r"DR-[A-Z]+-\d{3}(\.\w+)?")
OWN = {"more", "severity", "accepted", "text", "remedy"}
LINK = re.compile(r"\]\(([^)#]+)\)")


def docs(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def sources() -> dict[Path, str]:
    """Every module of the distribution, with its text."""
    paths = [path for package in ("dr_ctl", "dr_ctl_lab") for path in (ROOT / package).rglob("*.py")]
    return {path: path.read_text("utf-8") for path in paths}


def test_every_finding_is_in_the_catalogue_and_is_made_of_what_its_texts_name() -> None:
    nodes = [
        (path, node)
        for path, text in sources().items()
        if "DR-" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant | ast.Call)
    ]
    named = {str(node.value) for _, node in nodes if isinstance(node, ast.Constant) and KEY.fullmatch(str(node.value))}
    cases = {
        f"{kind.id}.{name}".rstrip("."): case for kind in catalogue().values() for name, case in kind.cases.items()
    }

    assert {key.partition(".")[0] for key in named} == set(catalogue())
    assert {key for key in named if "." in key} == {key for key in cases if "." in key}
    for path, call in nodes:
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("found", "refused") and call.args:
            given = {keyword.arg for keyword in call.keywords}
            for key in (node.value for node in ast.walk(call.args[0]) if isinstance(node, ast.Constant)):
                if not KEY.fullmatch(str(key)):
                    continue
                text, remedy, *_ = cases[str(key)]
                shown = ("" if "text" in given else text, "" if "remedy" in given else remedy)
                places = {name.partition(".")[0] for line in shown for _, name, *_ in Formatter().parse(line) if name}
                assert given - OWN == places, f"{path}:{call.lineno}"
                assert text or "text" in given, f"{path}:{call.lineno}"


def test_a_text_beside_the_catalogue_is_one_that_another_layer_has_worded() -> None:
    calls = [node for text in sources().values() for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    made = [{keyword.arg for keyword in call.keywords} for call in calls if getattr(call.func, "id", "") == "found"]

    assert 0 < sum(bool(given & {"text", "remedy"}) for given in made) <= 20


def test_no_maintenance_silences_what_is_called_a_split_brain_and_nothing_else_pages_always() -> None:
    cases = [case for kind in catalogue().values() for case in kind.cases.values()]

    assert {case.page for case in cases if case.always} == {Health.CRITICAL}
    assert {case.text for case in cases if case.always} == {case.text for case in cases if "split brain:" in case.text}


def test_every_exit_code_is_explained() -> None:
    assert set(explaining.codes()) == set(ExitCode)


@pytest.mark.parametrize(("page", "made"), pages.pages().items())
def test_what_is_made_of_the_code_is_up_to_date(page: str, made: str) -> None:
    text = (ROOT / page).read_text("utf-8")

    assert text == made, "python -m bench.pages"
    assert "(`None`)" not in made
    assert (
        text.count("<!-- made: ")
        == text.count("<!-- end -->")
        == {"docs/findings.md": 2}.get(page, page.endswith("md"))
    )


def test_the_table_of_versions_has_every_story() -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in docs("versions.md").splitlines()]

    assert {*versions.stories()} <= {tuple(row) for row in rows if row}


def test_a_command_that_the_table_names_is_one() -> None:
    known = get_command(app).commands  # type: ignore[attr-defined]
    remedies = {kind.id: " ".join(case.remedy for case in kind.cases.values()) for kind in catalogue().values()}
    for entry in (*explaining.findings().values(), *explaining.codes().values()):
        advice = f"{entry.do} {entry.costs} {entry.undo} {remedies.get(entry.name, '')}"
        for words in re.findall(r"`dr-ctl ([^`]+)`", advice):
            named = [word for word in words.split() if not word.startswith("-")]
            assert named[0] in known or named[0] == "COMMAND", (entry.name, words)
            parts = getattr(known.get(named[0]), "commands", None)
            assert parts is None or named[1] in parts, (entry.name, words)


def test_every_command_is_listed() -> None:
    words = docs("command-line.md")

    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        assert f"`{name}" in words, name
        for item in getattr(command, "commands", {}):
            assert re.search(rf"`{name}[^|]*`?{item}", words), f"{name} {item}"


def test_the_shipped_runbook_is_the_one_shown() -> None:
    shown = re.search(r"```yaml\n(.*?)```", docs("runbooks.md"), re.DOTALL)
    assert shown is not None
    path = ROOT / "runbooks" / "swapover.yaml"

    def bare(text: str) -> list[str]:
        return [line.split("#")[0].strip() for line in text.splitlines()]

    assert bare(shown[1]) == bare(path.read_text("utf-8"))
    assert load("swapover", shipped()).operation in ORDER


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name
)
def test_every_link_leads_somewhere(path: Path) -> None:
    for target in LINK.findall(path.read_text("utf-8")):
        assert (path.parent / target).exists(), target


def test_the_page_on_the_architecture_names_every_package_and_no_file_that_is_not_there() -> None:
    page = docs("architecture.md")
    packages = [path.parent for path in (ROOT / "dr_ctl").glob("*/**/__init__.py")] + [
        path.parent for path in (ROOT / "dr_ctl_lab").glob("*/__init__.py")
    ]
    places = [path.relative_to(ROOT).as_posix().removeprefix("dr_ctl/") for path in packages]
    files = {path.stem for part in ("dr_ctl", "dr_ctl_lab", "tests") for path in (ROOT / part).rglob("*.py")}

    assert [place for place in places if f"`{place}/`" not in page] == []
    assert set(re.findall(r"`(?:[\w<>]+/)*(\w+)\.py`", page)) <= files


def test_every_word_of_the_glossary_is_in_use_and_in_its_order() -> None:
    words = list(explaining.words())
    pages = [path for path in (ROOT / "docs").glob("*.md") if path.stem != "glossary"]
    texts = " ".join(" ".join(path.read_text("utf-8") for path in (ROOT / "README.md", *pages)).split()).lower()

    assert words == sorted(words)
    assert [word for word in words if word not in texts] == []


def test_the_page_on_new_topologies_names_what_the_code_has() -> None:
    named = {
        word for name in re.findall(r"`([A-Za-z_][\w.]*)`", docs("adding-a-topology.md")) for word in name.split(".")
    }

    words = set(re.findall(r"\w+", " ".join(f"{path} {text}" for path, text in sources().items())))
    words |= {*re.findall(r"\w+", (ROOT / "tests/twin/conftest.py").read_text("utf-8"))}

    assert len(named) > 50
    assert named - words == set()
