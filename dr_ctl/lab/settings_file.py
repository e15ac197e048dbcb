"""The settings file that a lab writes for itself, so that every command works on it as anywhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from dr_ctl.lab.cache import write_atomically
from dr_ctl.lab.state import ADMIN

if TYPE_CHECKING:
    from pathlib import Path

    from dr_ctl.lab.state import LabState, SiteState

NAME = "dr-ctl.yaml"


def write(directory: Path, state: LabState) -> Path:
    """Write `dr-ctl.yaml` and the secrets it points to; all readable by their owner only."""
    secrets = directory / "secrets"
    secrets.mkdir(mode=0o700, exist_ok=True)
    for site in state.sites:
        write_atomically(secrets / site.broker, site.admin_password + "\n")
    path = directory / NAME
    text = yaml.safe_dump(document(state), sort_keys=False, allow_unicode=True, default_flow_style=None)
    write_atomically(path, f"# Written by `dr-ctl lab up`: real brokers on this machine.\n{text}")
    return path


def document(state: LabState) -> dict[str, Any]:
    return {
        "version": 1,
        "name": state.name,
        "topology": state.topology,
        "sites": {
            name: {"brokers": [_broker(one) for one in state.brokers(name)]}
            for name in dict.fromkeys(site.name for site in state.sites)
        },
        "objectives": {"loss": {"messages": 0, "age": "30s"}, "recovery": "2m"},
        "history": {"path": "history"},
    }


def _broker(site: SiteState) -> dict[str, Any]:
    return {
        "name": site.pair,
        "jolokia": site.jolokia,
        "stomp": str(site.stomp),
        "username": ADMIN,
        "password": {"file": f"secrets/{site.broker}"},
        "clients": ["clients"],
        "mirror": ["mirror"],
    }
