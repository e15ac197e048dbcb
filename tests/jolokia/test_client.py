"""Whatever a console answers, by TLS too, is a value of the type asked for or an error that names what went wrong."""

import base64
import gzip
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.core.errors import BrokerError, LoginRefused, Sick, Throttled, TimedOut, Unreachable
from dr_ctl.core.tls import TlsFiles
from dr_ctl.jolokia import client
from dr_ctl.jolokia.client import Account, Change, Listing, Post, Query, Read, Reader, Search, Wire, make_changes
from dr_ctl.jolokia.http import (
    BadValue,
    ElementError,
    NoSuchBean,
    NotConnected,
    NotJolokia,
    OperationFailed,
    PolicyRefused,
    Torn,
    Vanished,
)
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.artemis import beans
from tests.jolokia.console import (
    Handler,
    Reply,
    answers,
    begin_and_stop,
    chunked,
    closed_port,
    console,
    hang_up,
    reset,
    send,
    silence,
    trickle,
    value,
)
from tests.tls import self_signed, serving

BEAN = 'org.apache.activemq.artemis:broker="a"'
PASSWORD = "s3cr€t"
HTML = "<!DOCTYPE html><html><body>Sign in</body></html>"
GOOD = value({"Depth": 7})
NO_BEAN = "javax.management.InstanceNotFoundException"
NO_ATTRIBUTE = "javax.management.AttributeNotFoundException"


def wire(url: str) -> Wire:
    return Wire(Account(url, "dr-ctl", PASSWORD, "http://127.0.0.1"))


def depths(url: str, *, timeout_s: float = 5.0) -> list[int]:
    """Ask twice for a number: what a reading does, from the wire to a value that is checked."""
    asking = wire(url)
    try:
        reading = Reader(asking).read([Read(BEAN, ("Depth",)), Read(BEAN, ("Depth",))], timeout_s=timeout_s)
        return [Fields(BEAN, answer.value()).number("Depth") for answer in reading]
    finally:
        asking.close()


def in_turn(*replies: Reply) -> Reply:
    left = list(replies)

    def reply(handler: Handler) -> None:
        (left.pop(0) if len(left) > 1 else left[0])(handler)

    return reply


@pytest.mark.parametrize(
    "text",
    [
        "java.lang.IllegalArgumentException : No matching attributes [Active] found on MBeans [a:b=c]",
        'java.lang.NullPointerException : Cannot invoke "ServerSession.getName()" because "this.session" is null',
    ],
)
def test_a_reading_is_made_again_where_a_connection_ended_meanwhile(text: str) -> None:
    gone = failed(400, text)
    with console(in_turn(answers(value({}), gone), answers(GOOD, GOOD))) as server:
        assert depths(server.url) == [7, 7], "all answers are of one POST"
    with console(answers(GOOD, gone)) as server, pytest.raises(OperationFailed, match="Exception"):
        depths(server.url)
    assert len(server.asked) == client.TRIES


def test_a_listing_of_connections_that_lacks_rows_is_asked_for_again() -> None:
    query = Query(BEAN, Listing.CONNECTIONS, ("", 1, 1_000_000))
    lacking, whole = value('{"data": [], "count": 1}'), value('{"data": [{}], "count": 1}')
    with console(in_turn(answers(lacking), answers(whole))) as server, closing(wire(server.url)) as asking:
        assert Reader(asking).read([query])[0].rows() == [{}]
    with console(answers(lacking)) as server, closing(wire(server.url)) as asking:
        answer = Reader(asking).read([query])[0]
    assert len(server.asked) == client.TRIES
    with pytest.raises(Vanished, match="not all of its rows"):
        answer.rows()


def failed(status: int, text: str, kind: str = "java.lang.Exception") -> dict[str, object]:
    return {"status": status, "error": text, "error_type": kind}


@pytest.mark.parametrize(
    "reply",
    [
        answers(GOOD, GOOD),
        chunked(b'[{"status": 200, "value": {"De', b'pth": 7}}, {"status": 200, "value": {"Depth": 7}}]'),
        send(200, gzip.compress(json.dumps([GOOD, GOOD]).encode()), {"Content-Encoding": "gzip"}),
    ],
    ids=["plain", "chunked", "gzip"],
)
def test_a_good_answer_becomes_its_values(reply: Reply) -> None:
    with console(reply) as server:
        assert depths(server.url) == [7, 7]


@pytest.mark.parametrize(
    ("error", "reply"),
    [
        pytest.param(LoginRefused, send(403, ""), id="wrong credentials"),
        pytest.param(LoginRefused, send(401, "", {"WWW-Authenticate": "Basic"}), id="no credentials"),
        pytest.param(Throttled, send(429, "", {"Retry-After": "1"}), id="throttled"),
        pytest.param(Throttled, send(429, HTML), id="throttled without a time"),
        pytest.param(NotJolokia, send(200, HTML), id="a web page"),
        pytest.param(NotJolokia, send(200, ""), id="nothing"),
        pytest.param(NotJolokia, send(404, HTML), id="a wrong path"),
        pytest.param(NotJolokia, send(400, "400 (Bad Request)\n\nNo type with name 'zork' exists"), id="bad request"),
        pytest.param(NotJolokia, send(302, "", {"Location": "/login"}), id="a redirect to a login page"),
        pytest.param(NotJolokia, send(307, HTML, {"Location": "/login"}), id="a redirect that keeps the POST"),
        pytest.param(NotJolokia, send(407, HTML), id="a proxy that wants a login"),
        pytest.param(NotJolokia, send(200, '"hello"'), id="JSON that is a text"),
        pytest.param(NotJolokia, send(200, "null"), id="JSON that is null"),
        pytest.param(NotJolokia, send(200, '{"status": "UP"}'), id="a health page"),
        pytest.param(NotJolokia, answers(1, 2), id="a list of no answers"),
        pytest.param(NotJolokia, answers({"value": {"Depth": 7}}, GOOD), id="an answer without status"),
        pytest.param(NotJolokia, send(500, json.dumps([GOOD, GOOD])), id="values under an HTTP error"),
        pytest.param(Sick, send(500, "java.lang.OutOfMemoryError: Java heap space"), id="out of memory"),
        pytest.param(Sick, send(500, HTML), id="an error page"),
        pytest.param(Sick, send(503, ""), id="unavailable"),
        pytest.param(Torn, send(200, json.dumps([GOOD, GOOD])[:-5]), id="JSON that ends early"),
        pytest.param(Torn, send(200, b'[{"status": 200, "value": "\xff"}]'), id="JSON that is not UTF-8"),
        pytest.param(Torn, send(200, "[" * 100_000), id="JSON without a bottom"),
        pytest.param(Torn, send(200, '[{"status":200,"value":{"Depth":' + "9" * 5000), id="a number without an end"),
        pytest.param(Torn, send(200, "[" + " " * 5000 + "]"), id="larger than allowed"),
        pytest.param(Torn, send(200, gzip.compress(b" " * 5000), {"Content-Encoding": "gzip"}), id="a small bomb"),
        pytest.param(Torn, send(200, b"no gzip", {"Content-Encoding": "gzip"}), id="damaged on the way"),
        pytest.param(Torn, answers(GOOD), id="one answer too few"),
        pytest.param(Torn, answers(GOOD, GOOD, GOOD), id="one answer too many"),
        pytest.param(Torn, answers(), id="no answer"),
        pytest.param(NotJolokia, send(200, json.dumps(GOOD)), id="one object in place of the list"),
        pytest.param(Torn, begin_and_stop(b'[{"status"', hang_up), id="hung up in the middle"),
        pytest.param(Torn, begin_and_stop(b'[{"status"', reset), id="reset in the middle"),
        pytest.param(Unreachable, hang_up, id="hung up at once"),
        pytest.param(Unreachable, reset, id="reset at once"),
        pytest.param(PolicyRefused, send(200, json.dumps(failed(403, "Origin null is not allowed"))), id="origin"),
        pytest.param(PolicyRefused, answers(failed(403, "no access"), GOOD), id="policy, one of two"),
        pytest.param(NoSuchBean, answers(failed(404, "no MBean", NO_BEAN), GOOD), id="no bean"),
        pytest.param(NoSuchBean, answers(GOOD, failed(404, "no attribute", NO_ATTRIBUTE)), id="no attribute"),
        pytest.param(NoSuchBean, answers(failed(500, "no MBean", NO_BEAN), GOOD), id="no bean, as other versions say"),
        pytest.param(OperationFailed, answers(GOOD, failed(400, "is overloaded")), id="bad request inside"),
        pytest.param(OperationFailed, answers(failed(500, "AMQ229230: bind a to b:7"), GOOD), id="it raised"),
        pytest.param(OperationFailed, send(500, json.dumps(failed(500, "boom"))), id="one error for all"),
        pytest.param(OperationFailed, answers({"status": 200}, GOOD), id="success without a value"),
        pytest.param(OperationFailed, answers({"status": "200", "value": {"Depth": 7}}, GOOD), id="status as a text"),
        pytest.param(OperationFailed, answers({"status": True, "value": {"Depth": 7}}, GOOD), id="status as a flag"),
        pytest.param(OperationFailed, answers({"status": None, "value": {"Depth": 7}}, GOOD), id="status null"),
        *(
            pytest.param(BadValue, answers(GOOD, value(item)), id=f"value {name}")
            for name, item in {
                "an error": {"Depth": {".error": True, "error": "no such attribute"}},
                "an error text": {"Depth": "ERROR: No such attribute: Depth"},
                "not a number": {"Depth": float("nan")},
                "infinite": {"Depth": float("inf")},
                "missing": {"depth": 7},
                "a list of attributes": [{"Depth": 7}],
                "no attributes at all": None,
                "a bare number": 7,
                "the error in the attributes' place": {".error": True},
            }.items()
        ),
    ],
)
def test_a_bad_answer_is_an_error_of_its_kind_and_never_a_value(
    error: type[BrokerError], reply: Reply, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_BYTES", 4000)

    with console(reply) as server, pytest.raises(BrokerError) as caught:
        depths(server.url)

    assert caught.type is error
    assert PASSWORD not in repr(caught.value)
    assert server.url in str(caught.value) or BEAN in str(caught.value)
    assert ("may hold port 7: `ss -ltnp`" in str(caught.value)) is ("AMQ229230" in str(caught.value))
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "reply",
    [silence, begin_and_stop(b"[", silence), begin_and_stop(b"[", trickle)],
    ids=["nothing comes", "the body stops", "the body trickles"],
)
def test_an_answer_that_does_not_come_in_time_is_not_waited_for(reply: Reply) -> None:
    with console(reply) as server, pytest.raises(TimedOut):
        depths(server.url, timeout_s=0.15)


def test_a_closed_port_is_told_apart_from_one_that_cannot_be_reached() -> None:
    items = []
    for url in (closed_port(), "http://refused.invalid:8161/console/jolokia"):
        with pytest.raises(Unreachable) as caught:
            depths(url)
        items.append(caught.value.refused)

    assert items == [True, False]
    assert str(caught.value) == "http://refused.invalid:8161/console/jolokia: its name cannot be resolved"


def test_throttling_says_how_long_to_wait() -> None:
    with console(send(429, "", {"Retry-After": "9"})) as server, pytest.raises(Throttled, match="try again after 9 s"):
        depths(server.url)


@pytest.mark.parametrize("status", [401, 403])
def test_after_one_refused_login_nothing_is_sent_any_more_and_a_policy_that_refuses_is_none(status: int) -> None:
    with console(send(status, "")) as server:
        asking = wire(server.url)
        for act in (
            lambda: Reader(asking).read([Read(BEAN, ("Depth",))]),
            lambda: Reader(asking).read([Search("a:b=*")]),
            lambda: make_changes(asking, [Change(BEAN, "pause()")]),
        ):
            with pytest.raises(LoginRefused, match=f"the login of dr-ctl was refused \\(HTTP {status}\\)"):
                act()
        asking.close()

        assert len(server.asked) == 1
    with console(answers(failed(403, "no"), failed(403, "no"))) as server, closing(wire(server.url)) as asking:
        for _ in range(2):
            with pytest.raises(PolicyRefused):
                Reader(asking).read([Read(BEAN, ("Depth",))] * 2)[0].value()

        assert len(server.asked) == 2


def test_one_request_that_fails_leaves_the_others_answers() -> None:
    with console(answers(failed(404, "no MBean"), GOOD)) as server:
        first, second = Reader(wire(server.url)).read([Read(BEAN, ("X",)), Read(BEAN, ("Depth",))])

    assert isinstance(first.error, ElementError)
    assert second.value() == {"Depth": 7}


def test_a_login_goes_out_whole_whatever_its_letters() -> None:
    with console(answers(GOOD, GOOD)) as server:
        depths(server.url)

    [result] = server.headers
    assert base64.b64decode(result["Authorization"].removeprefix("Basic ")).decode() == f"dr-ctl:{PASSWORD}"
    assert result["Origin"] == "http://127.0.0.1"


def test_a_proxy_meant_for_the_web_never_sees_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    with console(answers(GOOD, GOOD)) as proxy, console(answers(GOOD, GOOD)) as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)

        depths(server.url)

    assert (len(proxy.asked), len(server.asked)) == (0, 1)


@pytest.mark.parametrize(
    "reply", [answers(GOOD), chunked(json.dumps([GOOD]).encode())], ids=["with its length", "chunked"]
)
def test_looks_share_one_connection(reply: Reply) -> None:
    with console(reply) as server:
        asking = wire(server.url)
        for _ in range(3):
            Reader(asking).read([Read(BEAN, ("Depth",))])
        asking.close()

        assert (len(server.asked), len(server.peers)) == (3, 1)


def body(act: Callable[[Wire], object]) -> list[dict[str, object]]:
    """What stands in the POST, without what every request has."""
    with console(answers(GOOD)) as server:
        asking = wire(server.url)
        act(asking)
        asking.close()
    [[*result]] = server.asked
    assert all(
        item.pop("config") == {"ignoreErrors": True, "includeRequest": False, "canonicalNaming": True}
        for item in result
    )
    return result


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (lambda asking: Reader(asking).read([Read("a:b=c", ("X", "Y"))]),
         {"type": "read", "mbean": "a:b=c", "attribute": ["X", "Y"]}),
        (lambda asking: Reader(asking).read([Search("a:b=*")]), {"type": "search", "mbean": "a:b=*"}),
        (lambda asking: Reader(asking).read([Query("a:b=c", Listing.BROWSE, (1, 10))]),
         {"type": "exec", "mbean": "a:b=c", "operation": "browse(int,int)", "arguments": [1, 10]}),
        (lambda asking: make_changes(asking, [Change("a:b=c", "stop(java.lang.String)", ("x",))]),
         {"type": "exec", "mbean": "a:b=c", "operation": "stop(java.lang.String)", "arguments": ["x"]}),
    ],
    ids=["read", "search", "ask", "change"],
)  # fmt: skip
def test_a_request_is_written_as_jolokia_reads_it(act: Callable[[Wire], object], told: dict[str, object]) -> None:
    assert body(act) == [told]


@pytest.mark.parametrize(
    ("build", "why"),
    [
        *((partial(build, bean), "not the name of a bean")
          for bean in ("", "broker", "a:b", "broker=a", "*:*")
          for build in (lambda bean: Read(bean, ("X",)), Search, lambda bean: Query(bean, Listing.PREPARED),
                        lambda bean: Change(bean, "pause()"))),
        (lambda: Read(BEAN, ()), "name the attributes to read"),
        *((partial(Change, BEAN, operation), "lacks its signature")
          for operation in ("", "pause", "pause(", "pause() ", "pause(java lang)", "a b()", "pause()()")),
    ],
)  # fmt: skip
def test_a_request_that_is_none_does_not_go_out(build: Callable[[], Read | Change], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        build().body()


def test_a_reader_has_no_way_to_change() -> None:
    public = {name for name, _ in inspect.getmembers(Reader) if not name.startswith("_")}

    assert public == {"activation", "read", "url"}
    assert all(listing.value.startswith(("list", "get", "browse(", "count", "canInvoke(")) for listing in Listing)


def test_an_account_shows_its_password_in_no_text_and_every_error_of_a_broker_says_what_to_do() -> None:
    account = Account("http://a/b", "dr-ctl", PASSWORD, "http://a")
    kinds = [Unreachable, TimedOut, LoginRefused, Throttled, Sick, NotJolokia, Torn, *ElementError.__subclasses__()]

    assert f"{account!r} {account}" == "Account('http://a/b', 'dr-ctl') Account('http://a/b', 'dr-ctl')"
    assert [kind.__name__ for kind in kinds if kind.remedy == BrokerError.remedy] == []


def test_each_question_has_its_own_answer_and_all_travel_in_one_post() -> None:
    replies = answers(value({"Depth": 7}), value([BEAN]), failed(404, "gone", NO_BEAN), value("[]"))
    post = Post()
    with console(replies) as server, closing(wire(server.url)) as asking:
        depth = post.ask(Read(BEAN, ("Depth",)))
        names = post.ask(Search(f"{BEAN},*"))
        queue = post.ask(Read(f"{BEAN},queue=q", ("Depth",)))
        listed = post.ask(Query(BEAN, Listing.BROWSE_ALL))
        post.send(Reader(asking))

    assert [[question["type"] for question in body] for body in server.asked] == [["read", "search", "read", "exec"]]
    assert depth.fields().number("Depth") == 7
    assert names.value() == [BEAN]
    assert isinstance(queue.error, NoSuchBean)
    with pytest.raises(NoSuchBean):
        queue.fields()
    assert listed.value() == "[]"
    with pytest.raises(RuntimeError, match="never sent"):
        Post().ask(Read(BEAN, ("Depth",))).value()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


@contextmanager
def served(certificate: tuple[Path, Path], *, asks_back: bool = False) -> Iterator[str]:
    """A console behind TLS; `asks_back` for a certificate of who asks."""
    with console(answers(value({"Depth": 7}))) as server:
        server.socket = serving(certificate, asks_back=asks_back).wrap_socket(server.socket, server_side=True)
        yield server.url.replace("http:", "https:")


def depth(url: str, **tls: Any) -> object:
    """Ask twice: the second time over the connection that was kept."""
    account = Account(url, "dr-ctl", "secret", "http://127.0.0.1", TlsFiles(**tls))
    with closing(Wire(account)) as wire:
        rows = [Reader(wire).read([Read(BEAN, ("Depth",))])[0].value() for _ in range(2)]
    assert rows[0] == rows[1]
    return rows[0]


def test_an_authority_that_is_named_is_trusted_and_no_other(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    with served(certificate) as url:
        assert depth(url, ca=str(certificate[0])) == {"Depth": 7}
        with pytest.raises(Unreachable, match="TLS failed") as caught:
            depth(url)
        with pytest.raises(NotConnected, match="a file that TLS needs cannot be used") as missing:
            depth(url, ca=str(tmp_path / "none.pem"))
    with console(answers(GOOD, GOOD)) as server, pytest.raises(Unreachable, match="TLS failed") as caught:
        depths(server.url.replace("http:", "https:"))
    assert not caught.value.refused
    assert all(words in caught.value.remedy for words in ("`tls.ca`", "http://"))
    assert missing.value.remedy.startswith("Name PEM files")


def test_whom_this_machine_trusts_is_trusted(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with served(certificate) as url:
        assert depth(url) == {"Depth": 7}


def test_another_host_name_is_not_trusted_unless_nothing_is_verified(certificate: tuple[Path, Path]) -> None:
    with served(certificate) as url:
        other = url.replace("127.0.0.1", "localhost")
        with pytest.raises(Unreachable, match="TLS failed"):
            depth(other, ca=str(certificate[0]))
        assert depth(other, verify=False) == {"Depth": 7}


def test_who_is_asked_for_a_certificate_shows_its_own(certificate: tuple[Path, Path]) -> None:
    cert, key = map(str, certificate)
    with served(certificate, asks_back=True) as url:
        assert depth(url, ca=cert, cert=cert, key=key) == {"Depth": 7}
        with pytest.raises(Unreachable):
            depth(url, ca=cert)


ERROR = {".error": True, "error": "No such attribute"}
OLD_ERROR = "ERROR: No such attribute: X (class javax.management.AttributeNotFoundException)"


@pytest.mark.parametrize(
    ("kind", "told", "given"),
    [
        ("number", 0, 0),
        ("number", -1, -1),
        ("flag", False, False),
        ("text", "", ""),
        ("optional_text", None, None),
        ("optional_text", "DLQ", "DLQ"),
        ("mapping", {"port": 61616}, {"port": "61616"}),
    ],
)
def test_a_value_of_the_right_type_is_given(kind: str, told: object, given: object) -> None:
    value = getattr(Fields("bean", {"X": told}), kind)("X")

    assert value == given
    assert type(value) is type(given)


@pytest.mark.parametrize(
    ("kind", "wanted", "bad"),
    [
        ("number", "a whole number", [True, 1.0, "1", None, [], {}, ERROR, OLD_ERROR, float("nan")]),
        ("flag", "true or false", [0, 1, "true", None, [], ERROR, OLD_ERROR]),
        ("text", "a text", [0, True, None, [], ERROR, OLD_ERROR]),
        ("optional_text", "a text", [0, True, [], ERROR, OLD_ERROR]),
        ("mapping", "a mapping", [0, "{}", None, [], ERROR, OLD_ERROR]),
    ],
)
def test_a_value_of_another_type_is_never_given(kind: str, wanted: str, bad: list[Any]) -> None:
    for item in bad:
        with pytest.raises(BadValue, match=f"^bean: X should be {wanted}, but is "):
            getattr(Fields("bean", {"X": item}), kind)("X")
    if kind != "optional_text":
        with pytest.raises(BadValue, match=r"X should be .*, but is None"):
            getattr(Fields("bean", {"Y": 1}), kind)("X")


@pytest.mark.parametrize(
    ("told", "known"),
    [({"X": None}, True), ({"X": 0}, True), ({}, False), ({"X": ERROR}, False), ({"X": OLD_ERROR}, False)],
)
def test_an_attribute_is_known_only_where_the_broker_told_it(told: dict[str, object], known: bool) -> None:
    assert Fields("bean", told).has("X") is known


def test_a_long_value_is_cut_in_the_text_of_its_error() -> None:
    with pytest.raises(BadValue) as caught:
        Fields("bean", {"X": "y" * 10_000}).number("X")

    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        ("site-a", '"site-a"'),
        ("", '""'),
        ("a,b=c:d", '"a,b=c:d"'),
        ('say "hi"', r'"say \"hi\""'),
        ("orders.*", r'"orders.\*"'),
        ("what?", r'"what\?"'),
        ("a\\b", r'"a\\b"'),
        ("\\n", r'"\\n"'),
        ("a\nb", r'"a\nb"'),
        ("Žluťoučký", '"Žluťoučký"'),
    ],
)
def test_quoting_is_that_of_java(value: str, quoted: str) -> None:
    assert beans.quote(value) == quoted
    assert beans.unquote(quoted) == value


@pytest.mark.parametrize("value", ["plain", "", '"', '"half', 'half"'])
def test_what_is_not_quoted_stays_as_it_is(value: str) -> None:
    assert beans.unquote(value) == value


@given(st.text(), st.text(), st.sampled_from(["anycast", "multicast"]), st.text())
def test_a_queues_name_comes_apart_into_what_it_was_made_of(broker: str, address: str, routing: str, name: str) -> None:
    sections = beans.parts(beans.queue(broker, address, routing, name))

    own = {"broker": broker, "address": address, "routing-type": routing, "queue": name}
    assert sections == {**own, "component": "addresses", "subcomponent": "queues"}


NO_NAMES = ["domain", "domain:", ":a=b", "domain:a", "domain:a=b,", "domain:a=b,,c=d", 'd:a="b', 'd:a="b"c', "d:a=b,c"]


@pytest.mark.parametrize("name", ["", *NO_NAMES])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a bean"):
        beans.parts(name)
