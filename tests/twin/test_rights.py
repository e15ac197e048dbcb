"""Rights that somebody gave through management: a fence replaces them, and whoever lets clients in gives them back."""

from __future__ import annotations

import pytest

from dr_ctl.core.model import ExitCode
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.kinds import BRIDGES, MIRROR
from tests.conftest import Command
from tests.twin.test_bridges import IDS, IN, OUT, at
from tests.twin.test_lasting import settings, works

GIVEN = {
    IN: ("amq,app,bridge", "amq,app", *["amq"] * 8, "amq", "amq"),  # less than broker.xml gives a client
    OUT: ("amq,app,bridge,audit", "amq,app,audit", *["amq"] * 10),
}


def kept(twin: PlayedTwin, site: str) -> dict[str, dict[str, frozenset[str]]]:
    """What management has set at a site, without those that may do nothing."""
    security = twin.host(site).broker.security
    return {match: {role: may for role, may in grants.items() if may} for match, grants in security.kept.items()}


class TestBridges:
    @pytest.fixture
    def topology(self) -> str:
        return BRIDGES

    @pytest.fixture(params=["nothing", "no bridge", "all"])
    def given(self, twin: PlayedTwin, dr_ctl: Command, request: pytest.FixtureRequest) -> dict[str, object]:
        """What each match is given by hand at both sites; broker.xml gives clients nothing, or the bridges', or all."""
        gone = {"nothing": "app", "no bridge": "bridge", "all": ""}[request.param]
        for site in ("london", "paris"):
            with twin.still():
                security = at(twin, site).security
                security.kept[IDS] = security._file["#"]  # the bridges' role sends there whatever becomes of the rest
                security._file = {"#": {role: may for role, may in security._file["#"].items() if role != gone}}
                for match, words in GIVEN.items():
                    security.remove(match)
                    security.add(match, *words)
                security.reload()
        before = kept(twin, "paris")
        assert dr_ctl("fence", "paris", "--yes").code == ExitCode.OK
        return dict(before)

    def test_they_are_as_before_wherever_clients_are_let_in(
        self, twin: PlayedTwin, dr_ctl: Command, given: dict[str, object]
    ) -> None:
        for to in ("paris", "london"):
            ended = dr_ctl("swapover", "--to", to, "--yes")

            assert ended.code == ExitCode.OK, ended.document
            assert kept(twin, to) == given
            assert at(twin, to).serves_queue(IN)
            assert at(twin, to).serves_queue(OUT)

    def test_an_undone_fence_gives_them_back(self, twin: PlayedTwin, dr_ctl: Command, given: dict[str, object]) -> None:
        with twin.still():
            at(twin, "paris").security._file = {}
            at(twin, "paris").security.kept.clear()
            at(twin, "paris").security.add("#", *["amq,bridge"] * 12)
            at(twin, "paris").security.reload()

        ended = dr_ctl("swapover", "--to", "paris", "--yes")

        assert ended.code == ExitCode.REVERTED, ended.document
        assert kept(twin, "london") == given
        assert at(twin, "london").serves_queue(IN)

    def test_an_unfence_from_elsewhere_gives_them_back(
        self, twin: PlayedTwin, dr_ctl: Command, given: dict[str, object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert dr_ctl("fence", "london", "--yes").code == ExitCode.OK
        assert not at(twin, "london").serves_queue(IN)
        monkeypatch.setenv("DR_CTL_STATE_DIR", str(twin.directory / "another host"))

        assert dr_ctl("unfence", "london", "--yes").code == ExitCode.OK

        assert kept(twin, "london") == given


@pytest.mark.parametrize("topology", [MIRROR])
def test_those_at_a_mirror_are_given_back_where_the_file_gives_clients_nothing(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    settings(twin, lasting_fence={"roles": ["apps"], "matches": ["orders.#"]})
    for site in ("london", "paris"):
        with twin.still():
            security = twin.host(site).broker.security
            security._file = {"#": {role: may for role, may in security._file["#"].items() if role != "apps"}}
            security.add("orders.#", "amq,apps", "amq,apps", *["amq"] * 10)
            security.reload()
    given = kept(twin, "paris")
    assert dr_ctl("fence", "paris", "--yes").code == ExitCode.OK

    for to in ("paris", "london"):
        ended = dr_ctl("swapover", "--to", to, "--yes")

        assert ended.code == ExitCode.OK, ended.document
        assert kept(twin, to) == given
        assert [works(twin, site) for site in ("london", "paris")] == [to == "london", to == "paris"]
