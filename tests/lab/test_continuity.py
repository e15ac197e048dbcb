"""What a lab of the continuity plugin is made of: the jar, broker.xml, the start-up options."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from dr_ctl.core.errors import EnvironmentFault
from dr_ctl_lab.lab.artemis.continuity import JAR, KIND, configured, find_jar, profile
from dr_ctl_lab.lab.make import Make
from tests.lab.test_configuration import LONDON, PARIS, STOCK


def test_the_jar_that_is_told_goes_before_that_of_the_environment_and_without_one_it_is_said_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, other = tmp_path / "told.jar", tmp_path / "other.jar"
    monkeypatch.setenv(JAR, "")
    for asked, said in ((None, "none was named"), (told, "no plugin at")):
        with pytest.raises(EnvironmentFault, match=said) as failed:
            find_jar(asked)
        assert asked or "docs/artemis-continuity.md" in failed.value.remedy
    told.touch()
    other.touch()
    monkeypatch.setenv(JAR, str(other))

    assert find_jar(told) == told
    assert [KIND.options(each) for each in ({"plugin": told}, {})] == [{"plugin": told}, {"plugin": other}]


def test_the_plugin_is_told_its_peer_and_its_doors() -> None:
    made = STOCK.replace("<core>", "<core><persistence-enabled>true</persistence-enabled>")
    xml = ET.fromstring(configured(made, Make(LONDON, PARIS, 20021, ["orders.in", 'a<"b'])))

    told = {one.get("key"): one.get("value") for one in xml.iter("property")}
    assert (told["site-id"], told["serving-acceptors"], told["remote-password"]) == ("london", "clients", "admin-p")
    assert told["active-on-start"] == "false"
    assert {one.get("name"): one.text for one in xml.iter("connector")}["peer"] == "tcp://127.0.0.1:20021"
    assert [one.get("name") for one in xml.iter("address")] == ["orders.in", "DLQ"]
    assert [one.text for one in xml.iter("persist-id-cache")] == ["true"]


def test_the_options_fit_a_later_java() -> None:
    text = profile('JAVA_ARGS="-XX:+PrintClassHistogram -XX:+UseG1GC -Xms128M -Xmx2G"')

    assert "PrintClassHistogram" not in text
    assert "-Xmx512M" in text
    assert "--add-opens java.base/java.lang=ALL-UNNAMED" in text
