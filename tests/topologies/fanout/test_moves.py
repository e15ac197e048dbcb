"""What a move does with messages that lie at both sites, at one alone, or that were consumed: told by their ids.

Nothing is removed because the serving site lacks it: without the consumers' store of ids, counters of one start of both
brokers cover every message, or the messages stay and a person is told how many may come twice.
"""

from __future__ import annotations

import pytest
import yaml

from dr_ctl.agents.monitor import recording
from dr_ctl.settings.loader import load
from dr_ctl_lab.played import PlayedTwin
from tests.broker.driving import until
from tests.conftest import Command
from tests.patience import impatient
from tests.topologies.fanout.stories import ANY, SITES, Story, read, route

LINES = read(f"""
a swapover removes by id what was consumed: send a b c; send only to paris; consume london a;
    run 0 swapover --to paris; paris b c only; london b c; listed duplicates a
a site that lacks messages is not moved to until a return has copied them: send a; send b c to london;
    run 10 swapover --to paris; finds DR-PARITY-001 error; run 0 reinstate paris; run 0 swapover --to paris;
    paris a b c; copied paris b
without a way in of its own nothing can be copied: without sync; send a to london; run 10 reinstate paris;
    says the settings name no `sync:`; run 10 validate --to paris; finds DR-FAN-003
what a lost site had done is removed before anybody is let in: send a b c; consume london a b; lose; paris c;
    listed duplicates a b; least 1; finds_no DR-FAN-005
a site that is back is evened out by id and producers have to ask both again: send a b; send only to london; lose;
    send late to paris; consume paris a; start london; run 0 reinstate london; london b late only; paris b late;
    listed duplicates a; listed alone only only; finds DR-FAN-006; least 2; debts 0
trim removes at the waiting site what was consumed: send a b c; consume london b c; run 0 trim paris --dry-run;
    paris a b c; run 0 trim paris; paris a; serves london
what STOMP cannot carry whole is named and never copied: lose; send text to paris; counted paris; start london;
    run 20 failback --to london; finds DR-FAN-008 orders.in: 1 (counted); london text; closed london;
    says --accept-difference orders.in=1; run 0 failback --to london --accept-difference orders.in=1; serves london
counters of one start that cover every message prove what was consumed: without ids; send a b c; consume london a;
    run 0 swapover --to paris; paris b c; consume paris b; run 0 swapover --to london; london c; paris c
after a restart nothing is removed and a move asks before: without ids; send a b c d e f; consume london a b c;
    restart london; consume london d; run 10 validate --to paris; needs swapover --accept-duplicates 4;
    run 0 trim paris; finds DR-FAN-007 warning; says_no no more copies; run 10 swapover --to paris;
    finds DR-FAN-007 4 message(s) at paris may come as duplicates; paris a b c d e f;
    offers DR-FAN-007 --accept-duplicates 4; run 0 swapover --to paris --accept-duplicates 4;
    finds DR-FAN-007 warning; paris a b c d e f
a message at one site alone costs a person's word before the fence and the next move none: without ids;
    send a b c d e f; send alone to paris; consume london a; run 10 validate --to paris;
    needs swapover --accept-duplicates 2; run 10 swapover --to paris;
    finds DR-FAN-007 a message came to one site alone; run 10 swapover --to paris --accept-duplicates 1;
    run 0 swapover --to paris --accept-duplicates 2; paris a b c d e f alone; consume paris a b;
    run 0 swapover --to london; finds_no DR-FAN-007; london c d e f alone
a trim lets busy clients rest for a moment while both sites are compared: without ids; busy; send a b c d e f;
    consume london a b; run 0 trim paris --dry-run; says clients take messages while both sites are compared;
    finds DR-FAN-007; run 0 trim paris; finds_no DR-FAN-007; nothing_paused; alike
trim from a timer keeps small what one such message costs: without ids; send a b c d e f; consume london a b;
    run 0 trim paris; finds_no DR-FAN-007; send alone to paris; consume london c; run 0 trim paris; paris c d e f alone;
    finds DR-FAN-007 2 message(s) at paris; consume london d; run 0 trim paris --dry-run;
    says 1 consumed messages could be removed at paris; paris c d e f alone;
    finds DR-FAN-007 known by their ids to lie there alone; run 0 trim paris;
    finds DR-FAN-007 known by their ids to lie there alone; paris c e f alone;
    run 0 swapover --to paris --accept-duplicates 2
a restart since both were compared ends what counters tell: without ids; send a b c d; run 0 trim paris;
    restart london; consume london a; run 0 trim paris;
    finds DR-FAN-007 a broker was restarted since both were compared; paris a b c d
a return says before it begins what may come as duplicates: without ids; send a b c d; lose; consume paris a b;
    send k l m to paris; start london; run 10 validate --to london; needs failback --accept-duplicates 2;
    unchanged 10 failback --to london; run 0 failback --to london --accept-duplicates 2; london a b c d k l m; debts 0
a plan names what may come twice: without ids; send a b; consume london a; restart london;
    run refused plan swapover --to paris; finds DR-FAN-007
messages that one site alone confirmed are never taken for consumed: without ids; send a b c d; lose;
    send alone-1 alone-2 to paris; kill paris; start london; run 0 failover --to london {ANY};
    send k l m n o p q r to london; consume london a b c d k l m n o p q r; start paris; shut paris;
    run 10 failback --to paris; finds DR-FAN-007; paris_keeps alone-1 alone-2
a store that came back empty empties no other: without ids; send a b c; kill london; empty london; start london;
    open london; send k l m n; consume london k l m n; run 0 trim paris; finds DR-FAN-007; paris_keeps a b c
a purge at the serving site proves no message to be consumed: without ids; send a b c; purge london;
    run 0 trim paris; paris a b c; finds DR-FAN-007
a return from a listing that is cut is refused and owed still: lose; send a b c d e f g h to paris; start london;
    page 5; run refused reinstate london; says limits what a listing shows; debts 1
a return from a listing that is cut, without ids: without ids; lose; send a b c d e f g h to paris; start london;
    page 5; run refused reinstate london; says limits what a listing shows; debts 1
""") | {
    f"messages without an id and listings that are cut end a move before the fence, at {sites}": "send a b c; "
    # Paris holds as many, whatever came to London alone.
    "consume london c; page 1; run 10 swapover --to paris; says limits what a listing shows; page 400; "
    f"nameless {' '.join(sites)}; run 10 swapover --to paris; says has no order_id; serves london"
    for sites in (SITES, SITES[:1], SITES[1:])
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_story(twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    story = Story(twin, dr_ctl)
    story.patch = monkeypatch
    story.play(line)


def test_a_return_beside_busy_clients_leaves_only_what_the_lost_site_held(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What clients of the serving site take after the return counters tell: the failback that follows removes it."""
    story = Story(twin, dr_ctl)
    story.patch = monkeypatch
    story.play("without ids; busy; send a b c d e f g h; lose; send k l m n o p q r s t to paris; consume paris a")
    story.play("start london; run 10 failback --to london; says `dr-ctl reinstate london` first")
    story.play("run 0 reinstate london; nothing_paused")
    alone, since = {*story.lying("london")} - {*story.lying("paris")}, story.lying("paris")[:2]
    story.play(f"consume paris {' '.join(since)}; run 0 failback --to london --accept-duplicates {len(alone)}")
    assert "a" in alone
    assert {*since}.isdisjoint(story.lying("london"))


def test_messages_that_a_client_is_not_shown_are_no_consumed_ones(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(twin, dr_ctl)
    story.play("lose; send a b to paris; start london")
    monkeypatch.setattr("dr_ctl.topologies.fanout.access.read", lambda *_: {})
    story.play("run 10 reinstate london; says shows them to no client; debts 1")


def test_all_queues_wait_together_for_what_lies_at_one_site_alone(
    twin: PlayedTwin, dr_ctl: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = impatient(monkeypatch, differs_s=1.0)
    story = Story(twin, dr_ctl)
    story.without("ids")
    for number in range(9):
        route(twin, "paris", f"orders.{number}", b"alone", {"order_id": "alone"})
    story.run("0 swapover --to paris --accept-duplicates 9")
    assert story.ended.document["data"]["outage_s"] < 3 * patience.differs_s


def test_what_the_store_knows_costs_a_failover_no_duplicates_as_long_as_it_can_be_read(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    store = twin.settings_path.parent / yaml.safe_load(twin.settings_path.read_text())["ids"]["sqlite"]
    story, failover = Story(twin, dr_ctl), ("failover", "--to", "paris", "--yes")
    story.play("send a b c; consume london a b")
    with recording(load(twin.settings_path), every_s=0.1):
        until(lambda: dr_ctl("status").document["data"]["last_look"] is not None)
        twin.kill("london")
        until(lambda: dr_ctl(*failover, "--dry-run").code == 0)
    hidden = store.rename(store.with_suffix(".gone"))
    story.play(
        "run 10 failover --to paris; says up to 3 message(s) at paris come as duplicates: the store of processed"
    )
    story.play("run 0 failover --to paris --accept-duplicates 3 --dry-run")
    hidden.rename(store)
    story.play("run 0 failover --to paris; paris c")
    assert story.ended.document["data"]["bounds"]["duplicates"]["at_most"] == 0
