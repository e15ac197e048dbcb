"""A broker with a backup, of which the settings name one node, on real brokers: a failover never opens a second site
beside a node that serves or is about to, and no fence makes two nodes active."""

from pathlib import Path

import pytest

from dr_ctl.rpo.history.newest import nodes
from dr_ctl.settings.loader import load
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.recording import recording
from tests.broker.driving import Ended, Operator, state_of, until
from tests.broker.groups import is_active, meeting_at_the_clients, settings
from tests.conftest import Operators
from tests.twin.matrix import ACCEPTED

pytestmark = [pytest.mark.broker]

NODES, ALIVE, CUTS = "DR-NODE-001", "DR-ALIVE-001", "DR-NODE-002"
FAILOVER = ("failover", "--to", "paris", "--yes", *ACCEPTED)
WORD = ("--presume-down", "london", "--reason", "both its hosts are off")
TAKEOVER_S = 120.0


@pytest.mark.parametrize("replicates", [False, pytest.param(True, marks=pytest.mark.deep)], ids=["store", "copies"])
def test_the_nodes_that_the_settings_name_are_one_broker(
    tmp_path: Path, operators: Operators, *, replicates: bool
) -> None:
    """From the death of the primary on, a failover is refused: while a node may take over, while one serves, and after
    the death of that one until none can any more."""
    with Lab.up(tmp_path / "lab", nodes=2, replicates=replicates) as lab:
        operator = operators(lab, tmp_path / "state", settings(lab, named=True))
        until(
            lambda: not replicates or operator.run("status").document["data"]["nodes"]["london/orders-1"][1]["in_sync"]
        )
        before, looked = operator.run("status"), operator.run("validate", "--for", "swapover", "--to", "paris")
        lab.kill("london", node="a")
        asked = [operator.run(*FAILOVER)]
        while not is_active(lab, "b") and len(asked) < 60:
            asked.append(operator.run(*FAILOVER))
        until(lambda: operator.run("status").document["summary"] == "london serves", within_s=TAKEOVER_S, every_s=1.0)
        after = operator.run("status")
        serving = [operator.run(*FAILOVER), operator.run(*FAILOVER, *WORD)]
        opened = lab.admin("paris").clients_open()
        lab.kill("london", node="b")
        gone, worded = operator.run(*FAILOVER), operator.run(*FAILOVER, *WORD, "--dry-run")
        until(lambda: operator.run(*FAILOVER, "--dry-run").code == 0, within_s=TAKEOVER_S, every_s=1.0)
        moved = operator.run(*FAILOVER)

    def nodes(ended: Ended) -> dict[str, str]:
        return {item["name"]: item["state"] for item in ended.document["data"]["nodes"]["london/orders-1"]}

    assert (before.document["summary"], nodes(before)) == ("london serves", {"a": "active", "b": "passive"})
    assert not {NODES, CUTS} & {*looked.ids}, looked.document
    assert [request.code for request in asked] == [12] * len(asked), [request.document["summary"] for request in asked]
    assert nodes(after) == {"a": "refuses", "b": "active"}
    assert [site.code for site in serving] == [12, 12], [site.document for site in serving]
    assert not opened
    assert (gone.code, gone.ids[0]) == (12, "DR-NODE-004"), gone.document
    assert "a refuses, b refuses; within " in gone.finding("DR-NODE-004")["text"]
    assert (worded.code, worded.finding("DR-NODE-004")["severity"]) == (0, "warning"), worded.document
    assert moved.code == 0, moved.document


def rights_of_its_own(xml: str) -> str:
    """The role of dr-ctl and of the links may work at its own addresses alone."""
    words = ("send", "consume", "browse", "createAddress", "createDurableQueue", "createNonDurableQueue")
    rights = "".join(f'<permission type="{word}" roles="amq"/>' for word in words)
    own = "".join(
        f'<security-setting match="{match}">{rights}</security-setting>'
        for match in ("dr-ctl.#", "$ACTIVEMQ_ARTEMIS_MIRROR_*.#")
    )
    xml = xml.replace('roles="amq,apps"', 'roles="apps"')
    return xml.replace("<security-settings>", f"<security-settings>{own}")


@pytest.mark.deep
def test_a_takeover_behind_a_lasting_fence_is_no_split_brain_where_no_role_has_rights(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", nodes=2, edit=rights_of_its_own) as lab:
        operator = Operator(lab, tmp_path / "state")
        until(lambda: operator.run("validate", "--for", "swapover").code == 0)
        for target in ("paris", "london"):
            assert operator.run("swapover", "--to", target, "--yes").code == 0
        lab.kill("paris", node="a")
        until(lambda: operator.run("status").document["summary"].startswith("london serves; at paris"))
        status, checked = operator.run("status"), operator.run("check")
        fenced, after = operator.run("fence", "paris", "--yes"), operator.run("status")

    assert (status.ids, checked.code) == (["DR-ROLE-022"], 1), status.document
    assert (fenced.code, after.document["summary"], after.ids) == (0, "london serves", []), fenced.document


@pytest.mark.deep
@pytest.mark.parametrize("by_link", [True, False], ids=["a shared store, by the link", "replication, by the history"])
def test_no_site_is_opened_beside_a_node_that_may_serve(tmp_path: Path, *, by_link: bool) -> None:
    edit = None if by_link else meeting_at_the_clients
    with Lab.up(tmp_path / "lab", nodes=2, replicates=not by_link, edit=edit) as lab:
        path = settings(lab, named=False)
        operator, before = Operator(lab, tmp_path / "state", path), state_of(lab)
        looked, moved = operator.run("validate"), operator.run("swapover", "--to", "paris", "--yes")
        if not by_link:
            fenced = operator.run("fence", "london", "--yes")
            assert (fenced.code, state_of(lab), is_active(lab, "b")) == (10, before, False), fenced.document
            assert "both would be active" in fenced.finding(CUTS)["text"]
            assert "to `clients:`" not in fenced.told
            with recording(load(path), every_s=0.5):
                until(lambda: nodes(load(path).history, "london"), within_s=60, why="no node is in the history")
        # As slow to take over as a lease on its store makes it.
        lab.freeze("london", node="b")
        lab.kill("london", node="a")
        status, waiting = operator.run("status"), operator.run(*FAILOVER)
        lab.thaw("london", node="b")
        until(lambda: is_active(lab, "b"), within_s=TAKEOVER_S, why="the backup does not take over")
        until(lambda: operator.run(*FAILOVER, *WORD).document["findings"][0]["id"] == ALIVE, within_s=TAKEOVER_S)
        serving = [operator.run(*FAILOVER), operator.run(*FAILOVER, *WORD), operator.run("check")]
        opened = lab.admin("paris").clients_open()
        lab.kill("london", node="b")
        until(lambda: operator.run(*FAILOVER, *WORD, "--dry-run").code == 0, within_s=TAKEOVER_S)
        gone = [operator.run(*FAILOVER), operator.run(*FAILOVER, *WORD)]

    assert (looked.code, moved.code) == (10, 10), moved.document
    assert looked.finding(NODES)["severity"] == "error"
    assert "london/orders-1 has another node at 127.0.0.1:" in moved.finding(NODES)["text"]
    assert status.document["data"]["sites"]["london"]["role"] == "unknown"
    assert waiting.code == 12, waiting.document
    assert ("by the link of paris" if by_link else "by the history, at") in waiting.finding(NODES)["text"]
    for refused in serving[:2]:
        assert refused.code == 12, refused.document
        assert "the link from london/orders-1 to paris is attached" in refused.finding(ALIVE)["text"]
    for site in serving:
        assert "--presume-down london --reason" not in site.told
    assert not opened
    assert [name.code for name in gone] == [12, 0], [name.document for name in gone]
    assert gone[1].finding(NODES)["severity"] == "warning"
