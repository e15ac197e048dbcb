"""The calls that only brokers of a shared store have: a broker gives it up, a process is started or stopped. Pure."""

from typing import Final

from dr_ctl.engine.goals import Goal
from dr_ctl.engine.plan import Call
from dr_ctl.topologies.classic import beans
from dr_ctl.topologies.classic.operations import STOP
from dr_ctl.topologies.common.calls import call
from dr_ctl.topologies.console.requests import request
from dr_ctl.topologies.sharedstore.view import BrokerView

RUN: Final = "process"


def hand_over(view: BrokerView, to: str) -> Call:
    """Stop the broker that holds the store: by its process's command, where there is one, else by its console."""
    about = f"stop broker {view.broker}, so that {to} takes the store,"
    if Goal.STOP in view.own.commands:
        return call(view, Goal.HAND_OVER, view.broker, {RUN: Goal.STOP.value}, about)
    return call(view, Goal.HAND_OVER, view.broker, request(beans.broker(view.broker), STOP), about)


def start(view: BrokerView, when: str) -> list[Call]:
    """Start the process, which then waits for the store; returns no call where the settings name no command."""
    if Goal.START not in view.own.commands:
        return []
    return [call(view, Goal.START, view.broker, {RUN: Goal.START.value}, f"start the process of {view.broker}", when)]
