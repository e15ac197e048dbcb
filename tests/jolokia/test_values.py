"""Values out of an answer are of the type asked for; names of management beans are written as Java does it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.jolokia.errors import BadValue
from dr_ctl.jolokia.values import Fields
from dr_ctl.topologies.artemis import beans

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
    for told in bad:
        with pytest.raises(BadValue, match=f"^bean: X should be {wanted}, but is "):
            getattr(Fields("bean", {"X": told}), kind)("X")
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


@given(st.text())
def test_unquoting_undoes_quoting(value: str) -> None:
    assert beans.unquote(beans.quote(value)) == value


@pytest.mark.parametrize("value", ["plain", "", '"', '"half', 'half"'])
def test_what_is_not_quoted_stays_as_it_is(value: str) -> None:
    assert beans.unquote(value) == value


@given(st.text(), st.text(), st.sampled_from(["anycast", "multicast"]), st.text())
def test_a_queues_name_comes_apart_into_what_it_was_made_of(broker: str, address: str, routing: str, name: str) -> None:
    told = beans.parts(beans.queue(broker, address, routing, name))

    own = {"broker": broker, "address": address, "routing-type": routing, "queue": name}
    assert told == {**own, "component": "addresses", "subcomponent": "queues"}


def test_the_order_of_the_keys_does_not_matter() -> None:
    alphabetical = (
        'org.apache.activemq.artemis:address="orders.in",broker="site-a",component=addresses,queue="orders.in",'
        'routing-type="anycast",subcomponent=queues'
    )

    assert beans.parts(alphabetical) == beans.parts(beans.queue("site-a", "orders.in", "anycast", "orders.in"))


NO_NAMES = [
    "",
    "domain",
    "domain:",
    ":a=b",
    "domain:a",
    "domain:a=b,",
    "domain:a=b,,c=d",
    'd:a="b',
    'd:a="b"c',
    "d:a=b,c",
]


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a bean"):
        beans.parts(name)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        (beans.server("a"), 'org.apache.activemq.artemis:broker="a"'),
        (beans.acceptor("a", "x"), 'org.apache.activemq.artemis:broker="a",component=acceptors,name="x"'),
        (
            beans.broker_connection("a", "x"),
            'org.apache.activemq.artemis:broker="a",component=broker-connections,name="x"',
        ),
        (beans.all_acceptors("*"), r'org.apache.activemq.artemis:broker="\*",component=acceptors,name=*'),
        (beans.ANY_SERVER, "org.apache.activemq.artemis:broker=*"),
    ],
)
def test_names_are_written_as_the_broker_registers_them(name: str, written: str) -> None:
    assert name == written
