"""Real Classic brokers: what each page shows fits the settings of `examples/`; what their consoles deny, what counters
alone prove, what STOMP carries whole; and a shared store whose broker is killed, frozen and moved."""

import re
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dr_ctl.stomp_io.address import Address, Connected
from dr_ctl.stomp_io.client import probe, try_login
from dr_ctl_lab.lab import distribution
from dr_ctl_lab.lab.classic.admin import CLIENTS, ClassicAdmin
from dr_ctl_lab.lab.kinds import BROKERSYNC, FAN_OUT, KINDS, SHARED_STORE
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.rehearsal import UNKNOWN
from tests.broker.driving import Ended, Operator, changed_settings, end_all, until
from tests.topologies.absent import tells_of
from tests.topologies.pages import ROOT, blocks, exchanged
from tests.twin.matrix import ACCEPTED, edited

pytestmark = [pytest.mark.broker, pytest.mark.deep]
REPLACED: Final = ("destinationPolicy", "persistenceAdapter", "plugins", "transportConnectors")
INSIDE, AFTER, IN_CONNECTORS = "inside <broker>", "after </broker>", "inside <transportConnectors>"
Q: Final = "orders.in"


def pasted(kind: str, broker: str, inside: str, after: str = "") -> str:
    """The distribution's activemq.xml with these elements in the place of its own."""
    stock = (distribution.obtain(KINDS.named(kind).distribution) / "conf" / "activemq.xml").read_text("utf-8")
    for name in REPLACED:
        if f"<{name}>" in inside:
            stock = re.sub(rf"<{name}>.*?</{name}>", "", stock, flags=re.DOTALL)
    assert 'brokerName="localhost"' in stock
    stock = stock.replace('brokerName="localhost"', f'brokerName="{broker}" id="broker"')
    return stock.replace("</broker>", f"{inside}</broker>{after}")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class Listeners:
    """Finds for each address of a page one of a lab's, where brokers of one machine take its place; `named` are the
    ports that the lab itself looks at, by those of the page."""

    def __init__(self, named: Mapping[str, str]) -> None:
        self._named, self._known = named, dict[tuple[str, str], int]()

    def learn(self, generated: str) -> str:
        """Note the ports that the lab chose for the broker whose activemq.xml it has written; says whose it is."""
        [site] = re.findall(r'brokerName="([\w-]+)"', generated)
        matches = dict(re.findall(r'name="([\w-]+)" uri="\w+://127\.0\.0\.1:(\d+)"', generated))
        self._known |= {(site, port): int(matches[name]) for port, name in self._named.items()}
        return str(site)

    def local(self, site: str, xml: str) -> str:
        return re.sub(r"0\.0\.0\.0:(\d+)", lambda match: f"127.0.0.1:{self.port(site, match[1])}", xml)

    def port(self, site: str, port: str) -> int:
        return self._known.setdefault((site, port), free_port())


def with_logins(xml: str, generated: str, conf: Path) -> str:
    matches = dict(re.findall(r'username="(\w+)" password="([^"]+)"', generated))
    texts = blocks("classic-user.md")
    realm = conf / "jetty-realm.properties"
    realm.write_text(realm.read_text("utf-8") + texts[realm.name], "utf-8")
    (conf / "jolokia-access.xml").write_text(texts["jolokia-access.xml"], "utf-8")
    xml = xml.replace("SYNC-PASSWORD", matches.get("agent", "")).replace("APP-PASSWORD", matches["app"])
    last = "</simpleAuthenticationPlugin>"
    return xml.replace(last, last + texts["inside <plugins>"])


def settings(
    lab: Lab, name: str, listeners: Listeners, more: Callable[[dict[str, Any]], None] = lambda _: None
) -> Path:
    """The example's settings, with the addresses and logins of this lab."""
    document = yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text("utf-8"))
    by_lab = yaml.safe_load(lab.settings_path.read_text("utf-8"))
    for site, section in document["sites"].items():
        [broker], [known] = section["brokers"], by_lab["sites"][site]["brokers"]
        section.pop("workloads", None)
        broker |= {"name": known["name"], "jolokia": known["jolokia"], "password": {"plain": "DR-CTL-PASSWORD"}}
        broker["stomp"] = f"stomp://127.0.0.1:{listeners.port(site, broker['stomp'].rpartition(':')[2])}"
        if "sync" in broker:
            own = broker["sync"]
            own["stomp"] = f"stomp://127.0.0.1:{listeners.port(site, own['stomp'].rpartition(':')[2])}"
            own["password"] = known["sync"]["password"]
    more(document)
    path = lab.directory / "pasted.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def ended() -> Any:
    yield
    end_all()


@pytest.mark.parametrize("closed", [False, True], ids=["starts open", "starts closed"])
def test_brokersync(tmp_path: Path, *, closed: bool) -> None:
    texts = blocks("classic-brokersync.md")
    inside, after = texts[INSIDE], ""
    if closed:
        listener = re.search(r'  <transportConnector name="stomp".*?/>\n', inside)
        assert listener is not None
        inside = inside.replace(listener[0], texts[f"starts closed, {IN_CONNECTORS}"])
        after = texts[f"starts closed, {AFTER}"]
    listeners = Listeners({"61613": CLIENTS, "61614": "sync", "61617": "openwire"})

    def edit(generated: str) -> str:
        site = listeners.learn(generated)
        [link] = re.findall(r"static:\(tcp://(127\.0\.0\.1:\d+)", generated)
        xml = pasted(BROKERSYNC, site, inside if site == "london" else exchanged(inside), after)
        xml = re.sub(r"(london|paris)-1:61617", link, xml)
        return listeners.local(site, with_logins(xml, generated, tmp_path / "lab" / site / "conf"))

    options = {"boots_open": True}
    with Lab.up(tmp_path / "lab", topology=BROKERSYNC, queues=(Q,), serving=None, edit=edit, options=options) as lab:
        operator = Operator(lab, tmp_path / "state", settings(lab, BROKERSYNC, listeners))
        if closed:
            tells_of(operator, lab, BROKERSYNC)
        begun = operator.run("activate", "london", "--yes") if closed else operator.run("fence", "paris", "--yes")
        send(lab, "london", 5, at=listeners.port("london", "61613"))
        moves(operator, "paris", begun)


def moves(operator: Operator, target: str, *before: Ended) -> None:
    """Nothing stands against a move, and its probe goes through."""
    steps = [
        *before,
        *(operator.run(*words) for words in (("validate", "--to", target), ("swapover", "--to", target, "--yes"))),
    ]

    assert [step.code for step in steps] == [0] * len(steps), [step.told for step in steps if step.code]
    assert [finding["text"] for finding in steps[-2].document["findings"] if finding["severity"] == "error"] == []
    assert "DR-PROBE-002" not in steps[-1].ids


def test_fanout(tmp_path: Path) -> None:
    inside = blocks("classic-fanout.md")[INSIDE]
    listeners = Listeners({"61613": CLIENTS, "61615": "sync"})

    def edit(generated: str) -> str:
        site = listeners.learn(generated)
        xml = with_logins(pasted(FAN_OUT, site, inside), generated, tmp_path / "lab" / site / "conf")
        return listeners.local(site, xml)

    options = {"boots_open": True}
    with Lab.up(tmp_path / "lab", topology=FAN_OUT, queues=(Q,), serving=None, edit=edit, options=options) as lab:
        ids = str(lab.directory / "ids" / "shared.sqlite")
        path = settings(lab, FAN_OUT, listeners, lambda document: document["ids"].update(sqlite=ids))
        operator = Operator(lab, tmp_path / "state", path)
        moves(operator, "paris", operator.run("fence", "paris", "--yes"))


@pytest.mark.parametrize("where", ["file", "database"])
def test_shared_store(tmp_path: Path, where: str) -> None:
    texts = blocks("classic-shared-store.md")
    inside, after = texts[INSIDE] + texts[f"{where}, {INSIDE}"], texts.get(f"{where}, {AFTER}", "")
    listeners = Listeners({"61613": CLIENTS})

    def edit(generated: str) -> str:
        site = listeners.learn(generated)
        xml = pasted(SHARED_STORE, site, inside, after).replace("/shared/kahadb", str(tmp_path / "shared"))
        if where == "database":
            matches = dict(re.findall(r'<property name="(\w+)" value="([^"]+)"', generated))
            xml = xml.replace("jdbc:postgresql://database-1:5432/activemq", matches["url"])
            xml = xml.replace('"username" value="activemq"', f'"username" value="{matches["username"]}"')
            xml = xml.replace("DATABASE-PASSWORD", matches["password"])
        return listeners.local(site, with_logins(xml, generated, tmp_path / "lab" / site / "conf"))

    def shared(document: dict[str, Any]) -> None:
        by_lab = yaml.safe_load(lab.settings_path.read_text("utf-8"))
        if where == "database":
            document["store"] |= {"dsn": by_lab["store"]["dsn"]}
            del document["store"]["lock"]
        else:
            document["store"]["lock"] = str(tmp_path / "shared" / "lock")
        for site, section in document["sites"].items():
            [broker], [known] = section["brokers"], by_lab["sites"][site]["brokers"]
            broker |= {"broker": site, "process": known["process"]}

    options = {"database": where == "database"}
    with Lab.up(tmp_path / "lab", topology=SHARED_STORE, queues=(Q,), serving=None, edit=edit, options=options) as lab:
        operator = Operator(lab, tmp_path / "state", settings(lab, SHARED_STORE, listeners, shared))
        roles = operator.run("status").document["data"]["sites"]
        serving = next(site for site, role in roles.items() if role["role"] == "serving")
        moves(operator, next(site for site in roles if site != serving))


ODD: Final = ("t\tx", "e\x1b[2J", "one\x01x")
UNSEEN: Final = "a\nb"  # its bean would have no valid name, so that the broker registers none


def test_every_command_works_beside_them_and_one_with_a_line_break_is_in_no_listing(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", topology=BROKERSYNC, queues=("orders.in",)) as lab:
        try:
            for name in (*ODD, UNSEEN):
                lab.admin("london").create_queue(name)
            operator = Operator(lab, tmp_path / "state")
            looked = operator.run("validate", "--to", "paris")
            ends = [operator.run("swapover", "--to", to, "--yes").code for to in ("paris", "london")]
        finally:
            end_all()

    items = [finding["text"] for finding in looked.document["findings"] if finding["id"] == "DR-SYNC-002"]
    assert all(name in items[0] for name in ODD)
    assert UNSEEN not in items[0]
    assert ends == [0, 0]


def test_a_policy_that_denies_what_steps_need_is_told_before_the_fence(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", topology=BROKERSYNC, options={"policy": "hardened"}) as lab:
        operator = Operator(lab, tmp_path / "state")
        ended = operator.run("swapover", "--to", "paris", "--yes")
        serving = operator.run("status").document["data"]["pairs"][0]["serving"]

    assert (ended.code, serving) == (10, "london"), ended.told
    for words in ("pause", "removeMatchingMessages", "jolokia-access.xml"):
        assert words in ended.told


def test_without_management_its_figures_are_told_and_nothing_is_moved(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", topology=BROKERSYNC) as lab:
        changed_settings_ = changed_settings(lab, tmp_path / "bare", without_jolokia)
        operator, bare = (
            Operator(lab, tmp_path / "state"),
            Operator(lab, tmp_path / "bare" / "state", changed_settings_),
        )
        ClassicAdmin(lab.site("london")).stop_link("paris")
        with lab.load(100, work_ms=50.0) as traffic:
            traffic.wait_for(200)
            traffic.pause_producing()
            until(lambda: status(operator) == status(bare), why="both readers say the same")
            snapshot = status(bare)
            refused = bare.run("swapover", "--to", "paris", "--yes")

    assert snapshot["sites"] == {"london": "serving", "paris": "standby"}
    assert snapshot["to_ship"]["orders.in"] > 0
    assert (refused.code, "DR-POLICY-003" in refused.told) == (10, True), refused.told


def without_jolokia(document: dict[str, Any]) -> None:
    for site in document["sites"].values():
        for broker in site["brokers"]:
            del broker["jolokia"]


def status(operator: Operator) -> dict[str, Any]:
    """Roles, and what is to be shipped by queue."""
    content = operator.run("status").document["data"]
    link = next(item for item in content["links"] if item["from"] == "london")
    return {"sites": {name: value["role"] for name, value in content["sites"].items()}, "to_ship": link["queues"]}


RATE = 60  # consumers that have one message in hand at a time keep up with it


def test_without_a_store_of_ids_it_moves_there_and_back_under_load_by_counters(tmp_path: Path) -> None:
    queues = ("orders.in", "orders.out", "facturen")
    with Lab.up(tmp_path / "lab", topology=FAN_OUT, queues=queues) as lab:
        with edited(lab) as settings_file:
            del settings_file["ids"]
        operator = Operator(lab, tmp_path / "state")
        with lab.load(2 * RATE) as traffic:
            traffic.wait_for(10 * RATE, within_s=60)
            ready = operator.run("validate", "--to", "paris")
            remote = operator.run("swapover", "--to", "paris", "--yes")
            traffic.wait_for(traffic.counts().sent + 4 * RATE, within_s=60)
            back = operator.run("swapover", "--to", "london", "--yes")
            traffic.wait_for(traffic.counts().sent + RATE, within_s=60)
            send(lab, "paris", 1, listener="producers", order_id="alone")
            refused = operator.run("swapover", "--to", "paris", "--yes")
            verdict = traffic.stop(drain_s=60)
        assert [ready.code, remote.code, back.code] == [0, 0, 0], (ready.told, remote.told, back.told)
        rest = operator.run("validate", "--to", "paris")
        [needs] = rest.document["data"]["operations"]["swapover"]["needs"]
        moved = operator.run("swapover", "--to", "paris", "--yes", *needs.split())
    assert verdict.drained
    assert (verdict.lost, verdict.duplicates) == ((), ())
    assert refused.code == 10, refused.told
    assert "a message was added at one site only since both were compared" in refused.told
    assert moved.code == 0, moved.told


def rows(lab: Lab, site: str, queue: str) -> dict[str, dict[str, Any]]:
    """What the console shows of a queue's messages, but for what each broker gives its own, by the producers' id."""
    admin = ClassicAdmin(lab.site(site))
    listed = admin._execute(admin._queue(queue), "browse()")
    own = {"JMSMessageID", "JMSTimestamp", "JMSXUserID", "BrokerPath", "PropertiesText"}
    kept = [{key: value for key, value in item.items() if key not in own} for item in listed]
    return {item["StringProperties"]["order_id"]: item for item in kept}


def send_every_kind(lab: Lab, site: str, queue: str) -> None:
    """As a JMS client does, which writes to one site only: the other one is lost."""
    where = lab.site(site)
    home = distribution.obtain(KINDS.named(FAN_OUT).distribution)
    source = Path(__file__).with_name("Kinds.java")
    address = f"tcp://127.0.0.1:{where.ports['openwire']}"
    words = [address, where.admin.user, where.admin.password, queue, "order_id"]
    classes = f"{home}/lib/*:{home}/lib/optional/*"
    subprocess.run(["java", "-cp", classes, str(source), *words], check=True, timeout=60, capture_output=True)


def test_a_return_copies_what_stomp_carries_whole_and_names_the_rest_before_anything_is_opened(tmp_path: Path) -> None:
    with Lab.up(tmp_path / "lab", topology=FAN_OUT) as lab:
        operator = Operator(lab, tmp_path / "state")
        lab.kill("london")
        lost = operator.run("failover", "--to", "paris", *UNKNOWN, "--yes")
        send_every_kind(lab, "paris", "orders.in")
        lab.start("london")
        ended = operator.run("failback", "--to", "london", "--yes")
        sent, copied = rows(lab, "paris", "orders.in"), rows(lab, "london", "orders.in")

    assert lost.code == 0, lost.told
    assert (ended.code, ended.document["data"]["pairs"][0]["serving"]) == (20, "paris"), ended.told
    [finding] = [item for item in ended.document["findings"] if item["id"] == "DR-FAN-008"]
    assert all(name in finding["text"] for name in ("empty", "map", "object", "stream", "typed"))
    assert copied.keys() == {"bytes", "text"}
    assert copied == {name: sent[name] for name in copied}


MESSAGES = 1000
LEASE_S = 2.0
DATABASE = {"database": True, "lease_ms": 1000 * LEASE_S, "keep_alive_ms": 700}


@pytest.fixture(params=[{}, DATABASE], ids=["lock-file", "database"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    options = {name: int(value) if name.endswith("ms") else value for name, value in request.param.items()}
    with Lab.up(tmp_path / "lab", topology=SHARED_STORE, queues=(Q,), options=options) as up:
        yield up


@pytest.fixture
def operator(lab: Lab, tmp_path: Path) -> Operator:
    return Operator(lab, tmp_path / "state")


def admin(lab: Lab, site: str) -> ClassicAdmin:
    return ClassicAdmin(lab.site(site))


def by_row(lab: Lab) -> bool:
    return bool(lab.state.options["database"])


def send(lab: Lab, site: str, count: int = MESSAGES, listener: str = "", at: int = 0, **more: str) -> None:
    """As a producer that reaches one site only."""
    where = lab.site(site)
    port = at or where.ports[listener or "clients"]
    _, connection = probe(Address("127.0.0.1", port), where.app, None, timeout_s=5)
    assert connection is not None
    for number in range(count):
        headers = {"persistent": "true", **more, **({"receipt": "last"} if number == count - 1 else {})}
        connection.stomp.send(f"/queue/{Q}", f"order {number}", headers=headers)
    until(lambda: any(frame.cmd == "RECEIPT" for frame in connection.receive(0.1)))
    connection.close()


def served(lab: Lab, site: str) -> bool:
    where = lab.site(site)
    return isinstance(try_login(where.stomp, where.app, None, timeout_s=2), Connected)


def roles(operator: Operator) -> dict[str, str]:
    done = operator.run("status")
    return {site: item["role"] for site, item in done.document["data"]["sites"].items()}


def test_a_frozen_holder_is_recognised_and_two_are_never_believed(lab: Lab, operator: Operator) -> None:
    send(lab, "london")
    lab.freeze("london")
    snapshot = roles(operator)
    refused = operator.run("failover", "--to", "paris", "--yes")
    if by_row(lab):
        until(lambda: served(lab, "paris"))
        closed = operator.run("failover", "--to", "paris", "--yes")
        lab.thaw("london")
        until(lambda: not served(lab, "london"))
    else:
        lab.kill("london")
        closed = operator.run("failover", "--to", "paris", "--yes")

    assert snapshot["london"] == "sick"
    assert (refused.code, refused.document["outcome"]) in ((12, "serving_site_alive"), (0, "ok"))
    assert refused.code == 12 or by_row(lab)
    assert closed.code == 0, closed.told
    until(lambda: roles(operator) == {"london": "standby" if by_row(lab) else "down", "paris": "serving"})
    assert len(admin(lab, "paris").ids(Q)) == MESSAGES


def test_a_lease_holder_id_is_a_setting_and_without_it_the_line_to_add_is_said(tmp_path: Path) -> None:
    options = {**DATABASE, "lease_ms": int(DATABASE["lease_ms"]), "lease_holders": True}
    with Lab.up(tmp_path / "lab", topology=SHARED_STORE, queues=(Q,), options=options) as lab:
        named = Operator(lab, tmp_path / "state")
        settings = changed_settings(lab, tmp_path / "changed", without_lease_holders)
        unnamed = Operator(lab, tmp_path / "other state", settings)
        send(lab, "london", 10)

        moved = named.run("swapover", "--to", "paris", "--yes")
        until(lambda: roles(named) == {"london": "standby", "paris": "serving"})
        seen_as = roles(unnamed)
        refused = unnamed.run("swapover", "--to", "london", "--yes")
        lab.kill("paris")
        taken = unnamed.run("failover", "--to", "london", "--yes", *ACCEPTED)
        after = roles(unnamed)

    assert moved.code == 0, moved.told
    assert seen_as["paris"] == "serving"
    assert (refused.code, {*refused.ids} & {"DR-STORE-002", "DR-STORE-014"}) == (10, {"DR-STORE-014"}), refused.told
    assert "`lease_holder: paris-lease` to broker orders-1 of site paris" in refused.told
    assert (taken.code, after["london"]) == (0, "serving"), taken.told


def without_lease_holders(document: dict[str, Any]) -> None:
    for site in document["sites"].values():
        del site["brokers"][0]["lease_holder"]


def test_what_is_not_in_the_store_is_said_before_or_after(lab: Lab, operator: Operator) -> None:
    """A store that can be counted says it before the fence, and to `validate`; a directory cannot."""
    send(lab, "london", 10)
    send(lab, "london", 3, persistent="false")

    ready = operator.run("validate", "--to", "paris")
    moved = operator.run("swapover", "--to", "paris", "--yes")

    if by_row(lab):
        assert (ready.code, moved.code) == (10, 10), moved.told
        assert "DR-STORE-008" in {*ready.ids} & {*moved.ids}
        assert served(lab, "london")
        # The same count follows where a frozen holder went on, and then no message is lost with it.
        [remedy] = [finding["remedy"] for finding in moved.document["findings"] if finding["id"] == "DR-STORE-008"]
        accepted = re.findall(r"--accept-difference \S+=\d+", remedy)
        again = operator.run("swapover", "--to", "paris", "--yes", *" ".join(accepted).split())
        assert (len(accepted), again.code) == (1, 0), again.told
    else:
        assert moved.code == 0, moved.told
        assert "DR-STORE-009" in moved.ids
