"""What a settings file may say of workloads: each kind has its own keys, all that is wrong is told at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dr_ctl.settings.loader import SettingsError, load
from dr_ctl.settings.model import Installation
from dr_ctl.settings.workloads import CamelRoutes, Commands, HttpService, SystemdUnit

EXAMPLE = Path(__file__).parents[2] / "examples" / "artemis-mirror-workloads.yaml"
HTTP = {"kind": "http", "start": {"post": "http://a/go"}, "stop": {"post": "http://a/halt"}}
STATE = {"get": "http://a/state", "running": "RUNNING"}
CAMEL = {"kind": "camel-route", "jolokia": "http://a:8778/jolokia/", "routes": ["in"]}


def loaded(folder: Path, *workloads: dict[str, Any]) -> Installation:
    told = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    told["sites"]["london"]["workloads"] = list(workloads)
    (folder / "dr-ctl.yaml").write_text(yaml.safe_dump(told), encoding="utf-8")
    return load(folder / "dr-ctl.yaml")


def test_the_example_has_three_kinds_at_both_sites() -> None:
    sites = load(EXAMPLE).settings.sites

    for site in sites.values():
        assert [type(each) for each in site.workloads] == [CamelRoutes, SystemdUnit, Commands]
        assert [(each.singleton, each.timeout) for each in site.workloads] == [(True, 45), (False, 30), (False, 120)]


def test_what_is_asked_over_http_is_the_fourth(tmp_path: Path) -> None:
    [api] = loaded(tmp_path, {"name": "api", **HTTP, "state": STATE}).settings.sites["london"].workloads

    assert isinstance(api, HttpService)
    assert (api.stop.post, api.state.stopped) == ("http://a/halt", None)


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ({"name": "a", "kind": "cron"}, "'cron' found using 'kind'"),
        ({"name": "a"}, "Unable to extract tag"),
        ({"name": "a", "kind": "systemd"}, "unit: is missing"),
        ({"name": "a", "kind": "systemd", "unit": "--now"}, "unit: "),
        ({"name": "a", "kind": "systemd", "unit": "a.service", "routes": ["in"]}, "routes: unknown key"),
        ({"name": "", "kind": "systemd", "unit": "a.service"}, "name: is empty"),
        ({"name": "a", "kind": "command", "start": [], "stop": ["b"], "state": ["c"]}, "start: is empty"),
        ({"name": "a", **HTTP, "state": {**STATE, "get": "ftp://a"}}, "get: is not an http or https address"),
        ({"name": "a", **CAMEL, "username": "ops"}, "username and password stand together"),
        ({"name": "a", **CAMEL, "timeout": 30}, "timeout: 30 is not a duration"),
        ({"name": "a", **CAMEL, "password": {}, "username": "ops"}, "a secret is exactly one of"),
    ],
)
def test_what_is_wrong_is_told_at_its_place(tmp_path: Path, told: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingsError) as wrong:
        loaded(tmp_path, told)

    assert problem in str(wrong.value)


def test_its_line_is_that_of_the_key(tmp_path: Path) -> None:
    text = EXAMPLE.read_text(encoding="utf-8").replace("routes: [billing-in, billing-out]", "routes: billing", 1)
    line = next(number for number, each in enumerate(text.splitlines(), start=1) if "routes: billing" in each)
    (tmp_path / "dr-ctl.yaml").write_text(text, encoding="utf-8")

    with pytest.raises(SettingsError) as wrong:
        load(tmp_path / "dr-ctl.yaml")

    assert str(wrong.value) == (
        f"dr-ctl.yaml:{line}:17: sites.london.workloads.billing.routes: is a list, as in [name]"
    )


def test_two_of_one_name_at_a_site_are_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="a second workload is called a"):
        loaded(tmp_path, {"name": "a", **CAMEL}, {"name": "a", "kind": "systemd", "unit": "a.service"})
