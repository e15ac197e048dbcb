"""The settings file of a lab, so that every command works on it."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import yaml

from dr_ctl.engine.runs import write_text
from dr_ctl_lab.lab.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dr_ctl_lab.lab.spec import Kind
    from dr_ctl_lab.lab.state import LabState, SiteState

NAME = "dr-ctl.yaml"
NODE_KEYS = ("jolokia", "stomp")


def write(directory: Path, state: LabState) -> Path:
    """Write `dr-ctl.yaml` and its secrets; only their owner can read them."""
    (directory / "secrets").mkdir(mode=0o700, exist_ok=True)
    for site in state.sites:
        write_text(secret(directory, site), site.admin_password + "\n")
        for user, password in site.others.items():
            write_text(secret(directory, site, user), password + "\n")
    path = directory / NAME
    text = yaml.safe_dump(document(state), sort_keys=False, allow_unicode=True, default_flow_style=None)
    write_text(path, f"# Written by `dr-ctl lab up`: real brokers on this machine.\n{text}")
    return path


def secret(directory: Path, site: SiteState, user: str | None = None) -> Path:
    """The file of a password: the administrator's, or that of another user of the kind."""
    return directory / "secrets" / (site.group if user is None else f"{site.group}.{user}")


def _broker(kind: Kind, nodes: Sequence[SiteState]) -> dict[str, Any]:
    """The settings of a broker, with those of each node where it has several."""
    rows = [kind.settings(node, f"secrets/{node.group}") for node in nodes]
    if len(rows) == 1 or kind.group is None:
        return rows[0]
    node_rows = [{key: row[key] for key in NODE_KEYS} for row in rows]
    common = {key: value for key, value in rows[0].items() if key not in NODE_KEYS}
    if "sync" in common:  # one login, and at each node an address
        node_rows = [{**value, "sync": row["sync"]["stomp"]} for value, row in zip(node_rows, rows, strict=True)]
        common["sync"] = {key: value for key, value in common["sync"].items() if key != "stomp"}
    named = [{"name": node.node, **row} for node, row in zip(nodes, node_rows, strict=True)]
    return {**common, "nodes": named, **deepcopy(kind.group.settings)}


def document(state: LabState) -> dict[str, Any]:
    kind = KINDS.named(state.topology)
    document = {
        "version": 1,
        "name": state.name,
        "topology": state.topology,
        "sites": {
            name: {"brokers": [_broker(kind, state.brokers(name, pair)) for pair in state.pairs]}
            for name in dict.fromkeys(site.name for site in state.sites)
        },
        "objectives": {"loss": {"messages": 0, "age": "30s"}, "recovery": "2m"},
        "history": {"path": "history"},
    }
    return kind.complete(document, state.options)
