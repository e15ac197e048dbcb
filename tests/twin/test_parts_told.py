"""What a person reads of a move of some queues: its end, the state afterwards, and commands for these queues alone."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from dr_ctl.cli.app import run
from dr_ctl.core.model import ExitCode
from dr_ctl_lab.played import PlayedTwin
from dr_ctl_lab.twin.bridges.clients import work_off
from dr_ctl_lab.twin.kinds import BRIDGES
from tests.conftest import Command, Ended
from tests.patience import time_now
from tests.twin.test_bridges import IN, OUT, at, put

ALL_TO_PARIS = ("swapover", "--to", "paris", "--yes")
ONE_TO_PARIS = (*ALL_TO_PARIS, "--queues", OUT)
AS_MOVED = f"each queue serves at one site, as moved: {IN} at london, {OUT} at paris"


@pytest.fixture
def topology() -> str:
    return BRIDGES


@pytest.fixture
def shown(dr_ctl: Command, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The command line as a person sees it: what it writes to standard output."""
    del dr_ctl  # its environment is the same

    def command(*words: str) -> str:
        capsys.readouterr()
        run([*words], time_now())
        return capsys.readouterr().out

    return command


def commands_of(ended: Ended) -> list[list[str]]:
    """The commands in the remedies, as a shell takes them apart."""
    remedies = [each["remedy"] for each in ended.document["findings"]]
    return [shlex.split(each)[1:] for remedy in remedies for each in remedy.split("`")[1::2]]


def test_the_end_of_a_move_of_one_queue_speaks_of_that_queue_and_of_the_others_site(
    twin: PlayedTwin, dr_ctl: Command
) -> None:
    ended = dr_ctl(*ONE_TO_PARIS)

    first, *_, last = ended.document["summary"].split("; ")
    assert (first, last) == (f"moved {OUT} from london to paris", f"london goes on serving {IN}")
    assert f"nothing of {OUT} is under way" in ended.document["summary"]


def test_the_traces_of_a_move_of_one_queue_are_told_of_that_queue(twin: PlayedTwin, dr_ctl: Command) -> None:
    second, _, outage, back = dr_ctl(*ONE_TO_PARIS).document["data"]["after"]

    assert "closed" not in second
    assert OUT in second
    assert "until paris let clients in" in outage
    assert back == f"To come back: `dr-ctl swapover --to london --queues {OUT}`."
    typed = shlex.split(back.split("`")[1])[1:]
    assert (
        dr_ctl(*typed, "--yes")
        .document["summary"]
        .startswith(f"moved {OUT} from paris to london; verified: london serves {OUT}; ")
    )


def test_a_move_of_all_queues_by_a_pattern_ends_as_a_move_of_the_site(twin: PlayedTwin, dr_ctl: Command) -> None:
    ended = dr_ctl(*ALL_TO_PARIS, "--queues", "orders.#")

    assert ended.document["summary"].startswith("moved from london to paris; verified: paris serves; nothing")
    assert ended.document["data"]["after"][-1] == "To come back: `dr-ctl swapover --to london`."


def test_a_queue_that_no_site_has_is_refused(twin: PlayedTwin, dr_ctl: Command) -> None:
    refused = dr_ctl(*ALL_TO_PARIS, "--queues", "payments")

    assert refused.code == ExitCode.PRECHECK_FAILED
    assert [(each["id"], "payments" in each["text"]) for each in refused.document["findings"]] == [
        ("DR-UNIT-001", True)
    ]


def test_of_queues_that_serve_at_both_sites_the_rest_moves(twin: PlayedTwin, dr_ctl: Command) -> None:
    assert [dr_ctl(*words).code for words in (ONE_TO_PARIS, ALL_TO_PARIS)] == [ExitCode.OK] * 2

    assert dr_ctl("status").document["data"]["pairs"] == [{"name": name, "serving": "paris"} for name in (IN, OUT)]


def test_status_names_the_queues_of_each_site(twin: PlayedTwin, dr_ctl: Command, shown: Callable[..., str]) -> None:
    assert f"serving: {IN}; {OUT}" in shown("status")
    assert dr_ctl(*ONE_TO_PARIS).code == ExitCode.OK

    told = shown("status").splitlines()

    assert [line.split(maxsplit=1) for line in told if "serving:" in line] == [
        ["london", f"serving: {IN}"],
        ["paris", f"serving: {OUT}"],
    ]


def test_status_takes_no_processed_message_for_one_to_ship(twin: PlayedTwin, shown: Callable[..., str]) -> None:
    put(twin, IN, 20)
    twin.wait_mirrored()
    with twin.still():
        work_off(at(twin, "london"), IN)
        at(twin, "london").bridges[f"bridge.mirror.paris.{OUT}"].stop()
    put(twin, OUT, 3)

    told = shown("status")

    assert "3 message(s) and 0 processed id(s) to ship" in told
    assert "lie here and not" not in told


@pytest.mark.parametrize("command", [("plan", "failback"), ("failback", "--yes"), ("validate", "--for", "failback")])
def test_a_return_of_queues_that_were_moved_leads_to_a_swapover_and_never_to_a_fence(
    twin: PlayedTwin, dr_ctl: Command, command: tuple[str, ...]
) -> None:
    assert dr_ctl(*ONE_TO_PARIS).code == ExitCode.OK

    ended = dr_ctl(*command, "--to", "london")

    assert ended.code == ExitCode.PRECHECK_FAILED, ended.document
    [finding] = [each for each in ended.document["findings"] if each["text"] == AS_MOVED]
    assert finding["remedy"] == f"To bring {OUT} to london: `dr-ctl swapover --to london --queues {OUT}`."
    [typed] = [each for each in commands_of(ended) if each[0] == "swapover"]
    assert dr_ctl(*typed, "--yes").code == ExitCode.OK
    assert dr_ctl("status").document["summary"] == "london serves"


def test_validate_says_which_queues_a_swapover_without_a_pattern_moves(
    twin: PlayedTwin, dr_ctl: Command, shown: Callable[..., str]
) -> None:
    assert dr_ctl(*ONE_TO_PARIS).code == ExitCode.OK

    told = dr_ctl("validate", "--to", "london").document

    verdict = told["data"]["operations"]["swapover"]["verdict"]
    assert verdict == f"ready; moves {OUT}, and london serves the others already"
    assert not [each for each in told["findings"] if "fence" in each["remedy"]]
    assert f"each queue at one site: {IN} at london" in shown("--verbose", "validate")


@pytest.mark.parametrize("queues", [(), ("--queues", OUT)])
def test_verify_judges_the_queues_that_it_is_asked_for(
    twin: PlayedTwin, dr_ctl: Command, queues: tuple[str, ...]
) -> None:
    assert dr_ctl(*ONE_TO_PARIS).code == ExitCode.OK

    shut, served = dr_ctl("verify", "--to", "london", *queues), dr_ctl("verify", "--to", "paris", "--queues", OUT)

    assert shut.code == ExitCode.PRECHECK_FAILED
    assert commands_of(shut) == [["swapover", "--to", "london", "--dry-run", *queues]]
    where = f"{OUT} at paris" if queues else f"{IN} at london, {OUT} at paris"
    assert shut.document["summary"] == f"the gate is shut, each queue serves at one site, as moved: {where}"
    assert served.document["summary"] == f"paris serves {OUT}; there is nothing to verify"


def test_the_steps_of_one_queue_name_that_queue_to_the_end(twin: PlayedTwin, dr_ctl: Command) -> None:
    fenced = dr_ctl("fence", "london", "--queues", OUT, "--yes").document["summary"]
    drained = dr_ctl("drain", "--to", "paris", "--queues", OUT, "--yes").document["summary"]
    typed = shlex.split(drained.split("`")[1])[1:]

    opened = dr_ctl(*typed, "--yes").document["summary"]

    assert fenced == f"clients of {OUT} are kept out of london; london goes on serving {IN}"
    assert typed == ["activate", "paris", "--queues", OUT]
    assert opened.startswith(f"paris serves {OUT}; ")


def test_an_undone_move_of_one_queue_says_that_its_site_serves_it_again(twin: PlayedTwin, dr_ctl: Command) -> None:
    put(twin, OUT, 5)
    twin.wait_mirrored()
    with twin.still():
        lost = at(twin, "paris").queues[OUT].messages
        lost.pop(next(iter(lost)))

    ended = dr_ctl(*ONE_TO_PARIS)

    assert ended.code == ExitCode.REVERTED, ended.document
    assert ended.document["summary"].endswith(f"london serves {OUT} again")


def test_the_list_of_runs_says_which_queues_were_moved(
    twin: PlayedTwin, dr_ctl: Command, shown: Callable[..., str]
) -> None:
    assert dr_ctl(*ONE_TO_PARIS).code == ExitCode.OK
    assert dr_ctl(*ALL_TO_PARIS).code == ExitCode.OK

    listed = dr_ctl("runs", "list")

    # Two runs of one second stand in no order of their own.
    assert {each.get("queues") for each in listed.document["data"]["runs"]} == {OUT, None}
    assert f"[{OUT}] " in shown("runs", "list")


def test_an_advice_about_a_move_of_some_queues_names_them_for_a_shell(twin: PlayedTwin, dr_ctl: Command) -> None:
    put(twin, OUT, 4100)
    twin.wait_mirrored()
    with twin.still():
        work_off(at(twin, "london"), OUT)

    ended = dr_ctl("plan", "swapover", "--to", "paris", "--queues", "orders.out.#")
    assert ["trim", "paris", "--dry-run", "--queues", "orders.out.#"] in commands_of(ended)
    assert "'orders.out.#'" in next(each["remedy"] for each in ended.document["findings"] if "trim" in each["remedy"])


@pytest.mark.parametrize("command", ["swapover", "fence"])
def test_the_help_says_that_queues_can_be_named_by_a_pattern(shown: Callable[..., str], command: str) -> None:
    told = " ".join(shown(command, "--help").split())

    assert "a name, or a pattern as in Artemis" in told
