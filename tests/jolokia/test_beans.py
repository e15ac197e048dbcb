"""Names of management beans: quoting as Java does it, and taking apart whatever the order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dr_ctl.topologies.artemis import beans


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

    assert told == {
        "broker": broker,
        "component": "addresses",
        "address": address,
        "subcomponent": "queues",
        "routing-type": routing,
        "queue": name,
    }


def test_the_order_of_the_keys_does_not_matter() -> None:
    alphabetical = (
        'org.apache.activemq.artemis:address="orders.in",broker="site-a",component=addresses,queue="orders.in",'
        'routing-type="anycast",subcomponent=queues'
    )

    assert beans.parts(alphabetical) == beans.parts(beans.queue("site-a", "orders.in", "anycast", "orders.in"))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "domain",
        "domain:",
        ":a=b",
        "domain:a",
        "domain:a=b,",
        "domain:a=b,,c=d",
        'domain:a="b',
        'domain:a="b"c',
        "d:a=b,c",
    ],
)
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
