"""No message is removed without evidence, and every call says by which; every check of a topology has a name."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dr_ctl.settings.model import Queues
from dr_ctl.topologies.common.checks import OF_BROKER, OF_PAIR
from dr_ctl.topologies.common.consumed import (
    Announced,
    CompleteListing,
    Consumed,
    Covered,
    Evidence,
    IncompleteListing,
    NoEvidence,
    copy_exists,
    decided,
    done_in_both_stores,
)
from dr_ctl.topologies.common.rules import selects, selects_all
from dr_ctl.topologies.common.verbs.quiesce import MIN_GROUP, group_by_prefix

ROOT: Final = Path(__file__).resolve().parents[2] / "dr_ctl"
# Operations of brokers that take messages out of a queue, or take the queue away.
OPERATION: Final = re.compile(
    r"(removeM|removeAllM|removeQueue|removeDest|destroyQ|destroyA|deleteA|move\w*M|purge|expireM|sendM\w+ToDead|drop)"
)
# Functions that take any ids.
MOVING: Final = {"topologies/classic/ids.py": {"move_calls"}, "topologies/brokersync/procedure.py": {"move_messages"}}
PLANNED: Final = "plans that a run may do so, and sends nothing: the run asks for evidence"
OWN: Final = "dr-ctl's own document or probe, and no client's message"
ASIDE: Final = "moves messages within their broker, loses none, and a finding names the queue: a person looks there"
BACK: Final = "moves messages that were kept aside back to where clients get them"
COMMANDS: Final = "removes the plugin's own commands, and no client's message"
WITHOUT: Final = {
    "artemis/reading.py:Documents.delete": OWN,
    "artemis/broker.py:ArtemisRequests.remove": OWN,
    "bridges/tools.py:draft_trim": PLANNED,
    "brokersync/procedure.py:_move_duplicates": ASIDE,
    "brokersync/procedure.py:put_back": BACK,
    "brokersync/procedure.py:draft_move": PLANNED,
    "brokersync/procedure.py:move_messages": ASIDE,
    "classic/ids.py:plan_removal": PLANNED,
    "classic/ids.py:move_calls": ASIDE,
    "classic/beans.py:ClassicRequests.remove_queue": OWN,
    "common/verbs/canary.py:draft": OWN,
    "continuity/reinstate.py:reconcile": ASIDE,
    "continuity/copies.py:planned_removals": PLANNED,
    "continuity/reinstate.py:_commands_removed": COMMANDS,
    "continuity/reinstate.py:_leftovers_aside": PLANNED,
    "mirror/procedure.py:move_aside": ASIDE,
    "mirror/procedure.py:_leftovers_aside": PLANNED,
}


def removing(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """The constants of each module that name such an operation, its own and imported ones."""
    own = {
        path: {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name) and isinstance(node.value.value, str) and OPERATION.match(node.value.value)
        }
        for path, tree in trees.items()
    }
    for path, names in MOVING.items():
        own[path] |= names
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                remote = f"{(node.module or '').removeprefix('dr_ctl.').replace('.', '/')}.py"
                own[path] |= {name.asname or name.name for name in node.names if name.name in own.get(remote, ())}
    return own


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from (
                (f"{node.name}.{statement.name}", statement)
                for statement in node.body
                if isinstance(statement, ast.FunctionDef)
            )


def is_goal(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="Goal"), attr="REMOVE" | "MOVE"):
            return True
    return False


def removes(function: ast.FunctionDef, names: set[str], everywhere: set[str]) -> bool:
    for node in ast.walk(function):
        match node:
            case ast.Call(args=[*given]) if any(is_goal(argument) for argument in given):
                return True
            case ast.Name(id=name) if name in names:
                return True
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module != "Goal" and name in everywhere:
                return True
            case ast.Constant(value=str(text)) if OPERATION.match(text) and text.endswith(")"):
                return True
    return False


def takes_evidence(function: ast.FunctionDef) -> bool:
    if any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Consumed"
        for node in ast.walk(function)
    ):
        return True
    given = [*function.args.args, *function.args.kwonlyargs]
    return any(
        argument.annotation and re.search(r"\bConsumed\b", ast.unparse(argument.annotation)) for argument in given
    )


def found() -> dict[str, bool]:
    """Each function that takes messages out of a queue, and whether it takes evidence."""
    trees = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}
    constants = removing(trees)
    everywhere = set().union(*constants.values()).difference(*MOVING.values())
    return {
        f"{path.removeprefix('topologies/')}:{name}": takes_evidence(function)
        for path, tree in trees.items()
        for name, function in functions(tree)
        if removes(function, constants[path], everywhere)
    }


def test_every_removal_takes_evidence_or_stands_here_with_its_reason() -> None:
    assert sorted(name for name, evident in found().items() if not evident) == sorted(WITHOUT)


@pytest.mark.parametrize(
    "text",
    [
        "def f(view): return call(view, Goal.REMOVE, '', asked, '')",
        "def f(queue): return request(queue.bean, REMOVE)",
        "def f(queue): return request(queue.bean, operations.REMOVE)",
        "def f(queue): return request(queue.bean, 'purge()')",
    ],
)
def test_a_removal_is_found_however_it_is_written(text: str) -> None:
    [(_, function)] = functions(ast.parse(text))
    [(_, proven)] = functions(ast.parse(text.replace("def f(", "def f(gone: Consumed, ")))

    assert removes(function, {"REMOVE"}, {"REMOVE"})
    assert (takes_evidence(function), takes_evidence(proven)) == (False, True)


ONE, TWO = frozenset({"a"}), frozenset({"a", "b"})
SEEN = CompleteListing("orders", ONE, before=1, after=1)


@pytest.mark.parametrize(
    ("ids", "before", "after", "hidden", "came"),
    [
        (ONE, 2, 2, 0, None),  # one message is not shown: a transaction holds it
        (ONE, 1, 2, 0, None),  # one came meanwhile: another one may have been left out
        (ONE, 2, 1, 0, None),
        (TWO, 1, 1, 0, None),
        (ONE, 2, 2, 2, None),
        (ONE, 1, 1, 0, 1),  # one came, and one left: which of the two was shown, nobody knows
        (TWO, 1, 2, 0, 0),  # one more than came: its counters are not to be believed
        (ONE, 2, 1, 0, -1),  # counters that begin anew
    ],
)
def test_a_listing_that_does_not_show_all_is_no_listing(
    ids: frozenset[str], before: int, after: int, hidden: int, came: int | None
) -> None:
    with pytest.raises(IncompleteListing, match="orders holds"):
        CompleteListing("orders", ids, before, after, hidden, came)


@pytest.mark.parametrize(("before", "after", "hidden", "came"), [(3, 3, 2, None), (1, 0, 0, 0), (0, 0, 0, 1)])
def test_what_no_listing_shows_is_counted_in_and_what_left_once_shown_is_not_missed(
    before: int, after: int, hidden: int, came: int | None
) -> None:
    assert CompleteListing("orders", ONE, before, after, hidden, came).ids == ONE


@pytest.mark.parametrize(
    "by",
    [
        Announced(TWO, "start-1", 2, "start-1"),
        Covered(frozenset({"a", "b", "c"}), CompleteListing("orders", frozenset({"c"}), 1, 1), 2),
        done_in_both_stores(TWO, TWO | {"c"}),
        copy_exists("orders", TWO),
        decided(TWO, "CHG-1234: looked at each"),
    ],
)
def test_what_was_seen_proves_these_ids_and_no_others(by: Evidence) -> None:
    assert Consumed(TWO, by).ids == TWO
    with pytest.raises(NoEvidence):
        Consumed(TWO | {"x"}, by)


@pytest.mark.parametrize(
    "by",
    [
        Announced(TWO, "start-1", 2, "start-2"),  # the broker was away between
        Announced(TWO, "start-1", 1, "start-1"),
        Covered(TWO, CompleteListing("orders", frozenset(), 0, 0), 1),  # one is not covered: which one, nobody knows
        Covered(TWO | {"c"}, CompleteListing("orders", frozenset(), 0, 0), 2),
        Covered(TWO, SEEN, 2),  # a copy whose message lies at the serving site still
        done_in_both_stores(TWO, ONE),
        copy_exists("orders", ONE),
        decided(TWO, "  "),
    ],
)
def test_what_nobody_saw_proves_nothing(by: Evidence) -> None:
    with pytest.raises(NoEvidence, match="nothing proves"):
        Consumed(TWO, by)


MANY = [f"load.{number}" for number in range(1000)]
NAMES = st.text(alphabet="ab.", max_size=9)


def always(beginning: str) -> bool:
    return bool(beginning)


@settings(max_examples=20)
@given(st.sets(NAMES, min_size=200), st.sets(NAMES, max_size=3))
def test_each_has_many_that_are_wanted_and_no_other(names: set[str], others: set[str]) -> None:
    wanted = names - others
    prefixes = group_by_prefix(wanted, others, always)
    for beginning, value in prefixes.items():
        assert set(value) == {name for name in (*wanted, *others) if name.startswith(beginning)}
        assert len(value) >= MIN_GROUP
    result = [name for item in prefixes.values() for name in item]
    assert len(result) == len(set(result))


@pytest.mark.parametrize(
    ("others", "found"),
    [
        ((), {"load.": 1000}),
        (("orders.in", "$SYS", "loa"), {"load.": 1000}),
        (("load.5000",), {"load.0": 0, **{f"load.{digit}": 111 for digit in "12346789"}, "load.51": 0}),
        (("load.",), {f"load.{digit}": 111 for digit in "123456789"}),
    ],
    ids=["alone", "beside others", "around one of them", "around the beginning itself"],
)
def test_around_others_they_are_as_wide_as_can_be(others: tuple[str, ...], found: dict[str, int]) -> None:
    prefixes = group_by_prefix(MANY, others, always)
    assert {value: len(names) for value, names in prefixes.items()} == {
        value: count for value, count in found.items() if count
    }


def test_too_few_are_not_worth_it() -> None:
    assert group_by_prefix(MANY[: MIN_GROUP - 1], (), always) == {}


@pytest.mark.parametrize(
    ("queues", "beginning", "all_of_them"),
    [
        (Queues(), "load.", True),
        (Queues(), "", False),
        (Queues(), "dr", False),  # dr-ctl's own documents begin so
        (Queues(), "dr-ctl.lock", False),
        (Queues(), "$ACTIVEMQ_ARTEMIS_MIRROR_paris", False),
        (Queues(include=("load.#",)), "load.", True),
        (Queues(include=("load.#",)), "load", False),
        (Queues(include=("load.*",)), "load.", False),
        (Queues(include=("*.load.#",)), "a.load.", False),
        (Queues(include=("#.load.#",)), "load.", False),
        (Queues(exclude=("load.9",)), "load.", False),
        (Queues(exclude=("load.9",)), "load.1", True),
        (Queues(exclude=("load.*",)), "load.1", False),
        (Queues(exclude=("*.tmp",)), "load.", False),
    ],
)
def test_what_may_come_into_being_counts_too(queues: Queues, beginning: str, all_of_them: bool) -> None:
    assert selects_all(queues, beginning) is all_of_them
    if all_of_them:
        assert all(selects(queues, f"{beginning}{rest}") for rest in ("", "1", ".new", "1.a.b"))


TOPOLOGIES = ROOT / "topologies"
# The family whose checks a topology makes too.
FAMILIES = dict.fromkeys(("brokersync", "fanout", "sharedstore"), ("classic", "broker")) | dict.fromkeys(
    ("mirror", "continuity", "bridges"), ("artemis", "broker")
)
# A name that is taken is looked at where something is written, and what was done at a lost site when it returns.
NOT_A_CHECK = {"DR-LOCK-005", "DR-RETURN-005", "DR-RETURN-010"}
# Mirrors and bridges alone boot closed, drive locks and fence by roles, and Artemis alone keeps what MQTT left.
LOCKS_AND_ROLES = {"DR-DOOR-007", "DR-DOOR-008", "DR-FENCE-005", "DR-FENCE-006"}
MQTT = {"DR-MQTT-001"}


@pytest.mark.parametrize("folder", ["mirror", "continuity", "bridges", "brokersync", "fanout", "sharedstore"])
def test_each_finding_of_the_checks_has_a_name_and_no_other(folder: str) -> None:
    checks = import_module(f"dr_ctl.topologies.{folder}.checks").CHECKS
    own = _yielded(folder) | _yielded(*FAMILIES[folder])
    tables = (*OF_BROKER, *OF_PAIR, *checks.by_broker, *checks.by_pair)

    own |= _yielded("common") | _yielded("common", "group")
    others = set() if folder in ("mirror", "bridges") else LOCKS_AND_ROLES

    assert {table.id for table in tables} == own - NOT_A_CHECK - others - (
        MQTT if "classic" in FAMILIES[folder] else set()
    )
    assert all(table.name for table in tables)
    assert len({table.name for table in tables}) == len(tables)


def _yielded(package: str, module: str = "checks") -> set[str]:
    """The ids of the findings that the checks of a package make; a remedy that another finding lends makes none."""
    text = (TOPOLOGIES / package / f"{module}.py").read_text(encoding="utf-8")
    return set(re.findall(r"(?:(?<!remedy=)\bfound\(\s*|\bkey = )\"(DR-[A-Z]+-\d+)", text))
