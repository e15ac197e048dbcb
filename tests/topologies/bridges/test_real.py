"""Two real brokers that diverts and bridges join, AMQP clients and the page's configuration: what only they show."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dr_ctl_lab.lab.artemis.bridges import AGENT, CLIENTS, IDS, ORIGIN, TEXT, BridgesAdmin
from dr_ctl_lab.lab.clients.client import Proto, Traits
from dr_ctl_lab.lab.ids import IdStore
from dr_ctl_lab.lab.kinds import BRIDGES
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.ledger import Verdict
from tests.broker.driving import Ended, Operator, end_all, execute, send_as_client, send_speaking, until
from tests.topologies.absent import tells_of
from tests.topologies.pages import ACCEPTORS, RIGHTS, at_lab, blocks, in_the_place_of, installed, walked, with_user

pytestmark = [pytest.mark.broker, pytest.mark.deep]
QUEUES = ("FOO", "BAR", "BAZ")
RATE = 100 * len(QUEUES)
SWAPOVER = ("swapover", "--to", "paris", "--yes")


def made(lab: Lab, queue: str) -> None:
    """A queue at both sites that London serves."""
    for site in ("london", "paris"):
        admin(lab, site).create_queue(queue)
    admin(lab, "london").open_queue(queue)


def roles(lab: Lab, site: str, queue: str) -> set[str]:
    document = json.loads(execute(lab, site, "", f"getRolesAsJSON({TEXT})", queue))
    return {row["name"] for row in document if row["send"]}


def test_one_queue_of_three_moves_there_and_back_and_a_trim_beside_clients_takes_what_is_done(
    bridges_lab: Lab, operator: Operator
) -> None:
    with bridges_lab.load(RATE) as load:
        load.wait_for(5 * RATE, within_s=60)
        before = bridges_lab.admin("paris").depths()
        trimmed = operator.run("trim", "paris", "--yes")
        removed = [entry for entry in operator.journal() if (entry["step"] or "").endswith("-trim")][-1]["evidence"]
        for target in ("paris", "london"):
            ended = operator.run("swapover", "--to", target, "--queues", "FOO", "--yes")
            assert ended.code == 0, ended.told
            load.wait_for(load.counts().sent + RATE)
        verdict = load.stop()
    until(lambda: shipped(bridges_lab, "london", "paris"), why="all ids are applied")

    assert trimmed.code == 0, trimmed.told
    # All that lay there when it began, but for what clients had in hand.
    assert sum(removed["removed"].values()) > sum(before[name] for name in QUEUES) - RATE
    assert_clean(verdict)
    assert ids(bridges_lab, "london") == ids(bridges_lab, "paris")


def test_rights_that_management_gave_are_there_after_a_move_and_the_way_back(
    bridges_lab: Lab, operator: Operator
) -> None:
    """No file names the auditor, so that only what was noted can give the role its right back."""
    made(bridges_lab, "RT")
    rights = ("RT", "amq,app,bridge,auditor", "amq,app", *["amq"] * 8)
    execute(bridges_lab, "london", "", f"addSecuritySettings({','.join([TEXT] * 11)})", *rights)
    before = roles(bridges_lab, "london", "RT")

    remote = operator.run(*SWAPOVER, "--queues", "RT")
    moved = roles(bridges_lab, "london", "RT"), roles(bridges_lab, "paris", "RT")
    back = operator.run("swapover", "--to", "london", "--queues", "RT", "--yes")

    assert (remote.code, back.code) == (0, 0), (remote.told, back.told)
    assert ("app" in moved[0], "app" in moved[1]) == (False, True)
    assert roles(bridges_lab, "london", "RT") == before == {"amq", "app", "bridge", "auditor"}


def test_a_queue_that_an_ordinary_divert_feeds_is_moved_and_what_claims_another_origin_is_told(
    bridges_lab: Lab, operator: Operator
) -> None:
    made(bridges_lab, "FED")
    source = {"name": "SRC", "address": "SRC", "routing-type": "ANYCAST", "durable": True}
    execute(bridges_lab, "london", "", f"createQueue({TEXT},boolean)", json.dumps(source), True)
    divert = {"name": "app.SRC", "address": "SRC", "forwarding-address": "FED", "exclusive": True}
    execute(bridges_lab, "london", "", f"createDivert({TEXT})", json.dumps({**divert, "routing-type": "ANYCAST"}))
    for queue, count, origin in (("SRC", 5, {}), ("FOO", 2, {}), ("FOO", 3, {ORIGIN: "paris"})):
        send_as_client(bridges_lab, queue, count, **origin)
    send_as_client(bridges_lab, "BAR", 4, **{ORIGIN: "london"})
    until(lambda: shipped(bridges_lab, "london"), why="what is copied has arrived")

    done = operator.run("validate", "--for", "swapover", "--to", "paris")
    moved = operator.run(*SWAPOVER, "--queues", "FED")

    [foreign] = done.rows("DR-BRIDGE-015")
    assert (done.code, foreign["severity"]) == (10, "error"), "they would stay behind"
    assert foreign["text"].endswith(": 3 of FOO")
    assert [bridges_lab.admin("paris").depth(name) for name in ("FOO", "BAR", "FED")] == [2, 4, 5]
    assert moved.code == 0, moved.told


def test_counters_that_a_failed_link_has_left_apart_keep_no_gate_shut(bridges_lab: Lab, operator: Operator) -> None:
    read = ("MessagesPendingAcknowledgement", "MessagesAcknowledged")
    with bridges_lab.load(RATE) as load:
        load.wait_for(RATE)
        bridges_lab.kill("paris")
        load.wait_for(load.counts().sent + RATE)
        bridges_lab.start("paris")
        load.pause_producing()
        until(lambda: shipped(bridges_lab, "london"), why="what waited has arrived")
        beans = admin(bridges_lab, "london")._beans("component=bridges,name=*", *read)
        load.resume_producing()
        ended = operator.run(*SWAPOVER)
        load.wait_for(load.counts().sent + RATE)
        verdict = load.stop()

    assert any(one[read[0]] - one[read[1]] for one in beans.values()), "nothing is under way, and they do not say so"
    assert ended.code == 0, ended.told
    assert_clean(verdict)


def test_two_sites_without_a_gate_are_told_apart_by_their_clients(bridges_lab: Lab, operator: Operator) -> None:
    with bridges_lab.load(RATE) as load:
        load.wait_for(RATE)
        for name in QUEUES:
            admin(bridges_lab, "paris").open_queue(name)
        status = operator.run("status")
        refused = operator.run(*SWAPOVER)
        remedies = [row["remedy"] for row in refused.rows("DR-BRIDGE-012")]
        closed = [operator.run(*re.findall("`dr-ctl (.*?)`", remedy)[0].split(), "--yes") for remedy in remedies]
        moved = operator.run(*SWAPOVER)
        load.wait_for(load.counts().sent + RATE)
        verdict = load.stop()

    served = {site: item["role"] for site, item in status.document["data"]["sites"].items()}
    assert served == {"london": "serving", "paris": "standby"}
    assert (refused.code, refused.document["run"]) == (10, None), refused.told
    assert [name.code for name in closed] == [0] * len(QUEUES), [name.told for name in closed]
    assert moved.code == 0, moved.told
    assert_clean(verdict)


BUFFER = "mirror.paris.FOO"
FOO_ALONE = (*SWAPOVER, "--queues", "FOO")


def depths(lab: Lab) -> tuple[int, int]:
    return lab.admin("london").depth("FOO"), lab.admin("paris").depth("FOO")


def buffered(lab: Lab, kind: str) -> None:
    """Give London's buffer that routing type, as an operator does; its broker reads the file again by itself."""
    file = lab.instance("london") / "etc" / "broker.xml"
    buffer = f'<queue name="{BUFFER}"/>'
    other = {"anycast": "multicast", "multicast": "anycast"}[kind]
    configured = file.read_text()
    assert f"<{other}>{buffer}</{other}>" in configured
    file.write_text(configured.replace(f"<{other}>{buffer}</{other}>", f"<{kind}>{buffer}</{kind}>"))
    london = admin(lab, "london")
    address = f'{london._broker},component=addresses,address="mirror.FOO"'
    until(lambda: london._read(address, "RoutingTypes") == [kind.upper()], why="the broker reads its file again")


def severities(ended: Ended, kind: str) -> list[str]:
    return [row["severity"] for row in ended.rows(kind)]


def test_what_finds_no_buffer_is_told_before_a_move_and_named_by_it(bridges_lab: Lab, operator: Operator) -> None:
    """A multicast buffer takes nothing that JMS over AMQP marks for a queue; every second message is marked."""
    buffered(bridges_lab, "multicast")
    warned = operator.run("validate", "--to", "paris")
    send_speaking(bridges_lab, Proto.AMQP, "london", "FOO", 6)
    until(lambda: depths(bridges_lab) == (6, 3), why="half of them are copied")

    refused = operator.run(*FOO_ALONE)
    buffered(bridges_lab, "anycast")
    send_speaking(bridges_lab, Proto.AMQP, "london", "FOO", 6)
    until(lambda: depths(bridges_lab) == (12, 9), why="all of them are copied")
    lacking = operator.run(*FOO_ALONE)
    moved = operator.run(*FOO_ALONE, "--accept-difference", "FOO=3")

    assert severities(warned, "DR-BRIDGE-019") == ["warning"], warned.told
    assert (refused.code, severities(refused, "DR-BRIDGE-019")) == (10, ["error"]), refused.told
    assert "3 message(s) for FOO found no queue at mirror.FOO" in refused.told
    assert (lacking.code, severities(lacking, "DR-PARITY-004")) == (20, ["error"]), lacking.told
    assert "3 message(s) of FOO are at london and not at paris" in lacking.told
    assert (moved.code, severities(moved, "DR-BRIDGE-019")) == (0, ["warning"]), moved.told


def test_a_delayed_message_refuses_a_move_before_anything_is_closed_and_comes_later_where_so_many_may(
    bridges_lab: Lab, operator: Operator
) -> None:
    send_speaking(bridges_lab, Proto.AMQP, "london", "FOO", 4)
    send_speaking(bridges_lab, Proto.STOMP, "london", "FOO", 1, Traits(delay_ms=60_000))
    send_speaking(bridges_lab, Proto.AMQP, "london", "FOO", 1, Traits(delay_ms=60_000))
    send_speaking(bridges_lab, Proto.AMQP, "london", "FOO", 2, Traits(delay_ms=8_000))
    until(lambda: depths(bridges_lab) == (8, 4), why="what is due is copied")

    refused = operator.run(*FOO_ALONE)
    moved = operator.run(*FOO_ALONE, "--accept-difference", "FOO=2")

    assert (refused.code, severities(refused, "DR-BRIDGE-020")) == (10, ["error"]), refused.told
    assert "2 delayed message(s) of FOO are not shipped within 20 s" in refused.told
    assert moved.code == 0, moved.told
    # What is due soon was waited for.
    assert bridges_lab.admin("london").depth(BUFFER) == 2
    until(lambda: shipped(bridges_lab, "london"), within_s=90, why="they are due")
    until(lambda: depths(bridges_lab) == (8, 8))
    back = operator.run("swapover", "--to", "london", "--yes", "--queues", "FOO")
    assert back.code == 0, back.told


Q: Final = "orders.in"
# What the page calls otherwise than a lab, which has its own users, ports and processor.
CALLED: Final = {"notification.ids": IDS, "apps": CLIENTS, "processor": AGENT}


@pytest.fixture(autouse=True)
def ended() -> object:
    yield
    end_all()


def pasted(generated: str, options: dict[str, str], lab: Path) -> str:
    """The lab's broker.xml with the page's elements in the place of its own, and with the lab's password. The rights of
    dr-ctl stand on the page of the mirror."""
    mirror = blocks("artemis-mirror.md")
    with_user(generated, lab, mirror)
    [password, *_] = re.findall(r"<password>(.+?)</password>", generated)
    ports = {"61613": "clients", "61617": "bridge", "61618": "agents"}

    def of_page(name: str) -> str:
        xml = at_lab(options[name], generated, ports, london='<connector name="paris">' in generated)
        for page, called in CALLED.items():
            xml = re.sub(rf'(?<=[",.>]){page}(?=[",<])', called, xml)
        return xml.replace("BRIDGE-PASSWORD", password)

    rights = of_page(RIGHTS) + mirror["the rights of dr-ctl"]
    xml = in_the_place_of("<connectors>.*</diverts>", of_page(ACCEPTORS), generated)
    xml = in_the_place_of("<security-setting .*</security-setting>", rights, xml)
    own = rf'<address name="(?:mirror\.)?(?:{re.escape(Q)}|{re.escape(IDS)})">.*?</address>'
    return re.sub(own, "", xml, flags=re.DOTALL).replace("<addresses>", f"<addresses>{of_page('inside <addresses>')}")


def test_the_page_can_be_pasted_and_each_line_that_is_absent_is_told(tmp_path: Path) -> None:
    """Messages and ids go there and back under the rights of the page alone, which the bridges' user has."""
    items, fence = blocks("artemis-bridges.md"), {"lasting_fence": {"roles": [CLIENTS]}}

    with installed(tmp_path, BRIDGES, lambda xml: pasted(xml, items, tmp_path / "lab"), **fence) as (lab, operator):
        for site in ("london", "paris"):
            admin(lab, site).open_queue(Q)  # without the rights that the lab gave
        tells_of(operator, lab, BRIDGES)
        begun = [operator.run(*words.split(), "--yes").code for words in ("fence paris", "activate london")]
        with lab.load(RATE) as load:
            for target in ("paris", "london"):
                load.wait_for(load.counts().sent + RATE, within_s=60)
                begun.append(operator.run("swapover", "--to", target, "--yes").code)
            load.wait_for(load.counts().sent + RATE, within_s=60)
            assert_clean(load.stop(drain_s=60))
        walked(operator, "validate --to paris", "swapover --to paris --yes", "rehearse --on canary --yes")

    assert begun == [0] * 4


def admin(lab: Lab, site: str) -> BridgesAdmin:
    return BridgesAdmin(lab.site(site))


def ids(lab: Lab, site: str) -> set[tuple[str, str]]:
    """All that a site's store knows as processed."""
    store = IdStore(lab.id_store(site))
    try:
        return store.every()
    finally:
        store.close()


def shipped(lab: Lab, *sites: str) -> bool:
    """Nothing of these sites is under way, and all ids that arrived anywhere are in a store."""
    depths = {site: lab.admin(site).depths() for site in ("london", "paris")}
    held = [count for site in sites for name, count in depths[site].items() if name.startswith("mirror.")]
    return not any(held) and not any(depth[IDS] for depth in depths.values())


def assert_clean(verdict: Verdict) -> None:
    """Nothing lost, nothing worked on twice, and the queues were seen empty."""
    assert verdict.drained
    assert (verdict.lost, verdict.duplicates, verdict.redelivered, verdict.unexpected) == ((), (), (), ())


@pytest.fixture
def bridges_lab(tmp_path: Path) -> Iterator[Lab]:
    """London serves all queues, and nothing was ever sent."""
    with Lab.up(tmp_path / "lab", topology=BRIDGES, queues=QUEUES) as lab:
        yield lab


@pytest.fixture
def operator(bridges_lab: Lab, tmp_path: Path) -> Operator:
    return Operator(bridges_lab, tmp_path / "state")
