"""Imports point down only and in no circle, a topology stands behind its contract, some libraries have one home."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent / "dr_ctl"
LAB = ROOT.with_name("dr_ctl_lab")
LAYERS = (
    {"core"},
    {"telemetry"},
    {"settings"},
    {"engine"},
    {"jolokia", "stomp_io", "processes", "rpo"},
    {"topologies"},
    {"report", "agents"},
    {"application"},
    {"cli"},
    {LAB.name},
)
LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}
# An error that the twin shared with the product would show in no test.
TWIN = f"{LAB.name}.twin."
TWIN_MAY = ("core.", TWIN)
HOMES = {
    "pyspark": ("rpo/pipeline/",),
    "rich": ("cli/screen.py",),
    "click": (),
    "requests": ("jolokia/http.py", "dr_ctl_lab/simulation/wires.py"),
    "urllib3": (),
}
CONTRACT = ("topologies.topology", "topologies.proposing", "topologies.registry")
# What stands below a topology: what is common to all kinds of broker, and the family that its brokers are of.
BELOW = {
    "common": set[str](),
    "artemis": {"common"},
    "classic": {"common"},
    "mirror": {"common", "artemis"},
    "continuity": {"common", "artemis"},
    "bridges": {"common", "artemis"},
    "brokersync": {"common", "classic"},
    "sharedstore": {"common", "classic"},
    "fanout": {"common", "classic"},
    "workloads": {"common"},
}
# What stands beside the packages of topologies, whatever the topology; the registry knows them all, none knows it.
SHARED = {"topology", "proposing"}
# What decides may not hold what acts.
ACTING = {"session", "listeners", "gate", "observer", "reading", "tools"}


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the product by its name below `dr_ctl`, and those of the lab by their whole names."""
    paths = [(path.relative_to(ROOT), path) for path in sorted(ROOT.rglob("*.py")) if path.parent != ROOT]
    paths += [(path.relative_to(LAB.parent), path) for path in sorted(LAB.rglob("*.py"))]
    return {".".join(place.with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8")) for place, path in paths}


def imports(tree: ast.AST) -> Iterator[str]:
    """What is imported when it runs, at once or later: names that are for the type checker only are not."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from imports(node)


@cache
def ties() -> dict[str, frozenset[str]]:
    """Which modules of the product each of them imports."""

    result = {}
    for name, tree in modules().items():
        rows = {text.removeprefix("dr_ctl.") for text in imports(tree) if text.startswith("dr_ctl.")}
        # What is named is a module, or something in one.
        rows |= {item.rpartition(".")[0] for item in rows}
        result[name] = frozenset(rows & modules().keys() - {name})
    return result


def floor(name: str) -> str:
    return name.partition(".")[0]


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, tree in modules().items() if not ast.get_docstring(tree)] == []


def test_imports_point_down_only() -> None:
    crossing = [(name, item) for name, all_told in ties().items() for item in all_told if floor(name) != floor(item)]

    assert len(crossing) > 100
    assert [item for item in crossing if LEVEL[floor(item[1])] >= LEVEL[floor(item[0])]] == []


def test_the_twin_knows_nothing_of_the_product_but_its_core() -> None:
    twin = {name: imported for name, imported in ties().items() if name.startswith(TWIN)}

    assert len(twin) > 50
    assert [(name, text) for name, all_ in twin.items() for text in all_ if not text.startswith(TWIN_MAY)] == []


def test_libraries_have_one_home_and_the_twin_none_at_all() -> None:
    foreign = [(name, item.partition(".")[0]) for name, tree in modules().items() for item in imports(tree)]

    for name, library in foreign:
        if library in HOMES:
            assert (name.replace(".", "/") + ".py").startswith(HOMES[library]), (name, library)
        if name.startswith(TWIN) and library not in (ROOT.name, LAB.name):
            # The twin writes its settings as people write theirs.
            assert library in sys.stdlib_module_names or (name, library) == (f"{TWIN}site", "yaml"), (name, library)


def test_the_mathematics_of_a_history_knows_neither_spark_nor_files() -> None:
    pure = {name: [*imports(tree)] for name, tree in modules().items() if name.startswith("rpo.core.")}
    near = ("dr_ctl.core.", "dr_ctl.rpo.core.", "numpy", "pyarrow.compute")
    reads = {"io", "os", "pathlib", "shutil", "tempfile"}

    assert len(pure) > 5
    for name, all_told in pure.items():
        for text in all_told:
            library = text.partition(".")[0]
            assert text.startswith(near) or text == "pyarrow" or library in sys.stdlib_module_names - reads, (
                name,
                text,
            )


def test_a_topology_knows_what_is_common_and_its_family_and_no_other_one() -> None:
    for name, all_told in ties().items():
        own = name.split(".")
        if own[0] == "topologies" and len(own) > 2:
            others = {text.split(".")[1] for text in all_told if floor(text) == "topologies"}
            assert others - SHARED <= {own[1], *BELOW[own[1]]}, name
            asks = own[1] != "common" or own[2] in {*ACTING, "group"}
            assert asks or not [item for item in all_told if floor(item) == "jolokia"], name


def test_what_decides_uses_nothing_that_acts() -> None:
    """A draft or a want is given no tools; it names nothing that asks or changes a broker, nor does what it calls."""
    drafts = 0
    for name, tree in modules().items():
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        names = {
            function: {n.id for n in ast.walk(body) if isinstance(n, ast.Name)} for function, body in functions.items()
        }
        acting = {
            alias.asname or alias.name
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dr_ctl.topologies")
            for alias in node.names
            if ACTING & {*str(node.module).split("."), alias.name}
        }
        deciding = {
            function
            for function, body in functions.items()
            if (body.returns and ast.unparse(body.returns) == "StepPlan")
            or any(arg.annotation and ast.unparse(arg.annotation) == "AtBroker" for arg in body.args.args)
        }
        calls = {name: frozenset(used & functions.keys()) for name, used in names.items()}
        used = {name for draft in deciding for part in {draft, *reach(draft, calls)} for name in names[part]}
        assert not used & acting, name
        drafts += len(deciding)
    assert drafts > 30


def test_from_outside_a_topology_is_known_by_its_contract_only() -> None:
    behind = [
        (name, item)
        for name, all_told in ties().items()
        for item in all_told
        if floor(item) == "topologies" and floor(name) != "topologies" and item not in CONTRACT
    ]

    assert sorted(behind) == []


def test_no_imports_run_in_a_circle() -> None:
    assert circles(ties()) == []


def circles(ties: dict[str, frozenset[str]]) -> list[list[str]]:
    """The sets of modules of which each reaches all others."""
    reached = {name: reach(name, ties) for name in ties}
    rows = {
        frozenset(state for state in reached[name] if name in reached[state]) for name in ties if name in reached[name]
    }
    return sorted(sorted(item) for item in rows)


def reach(name: str, ties: dict[str, frozenset[str]]) -> set[str]:
    value: set[str] = set()
    left = [name]
    while left:
        for tie in ties[left.pop()] - value:
            value.add(tie)
            left.append(tie)
    return value
