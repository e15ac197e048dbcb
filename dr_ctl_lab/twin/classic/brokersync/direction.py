"""The network bridge of one broker, and the agent of the same direction."""

from dr_ctl_lab.twin.bridged_direction import BridgedDirection
from dr_ctl_lab.twin.classic.brokersync.agent import Agent
from dr_ctl_lab.twin.classic.brokersync.broker import BrokerSyncBroker


class BrokerSyncDirection(BridgedDirection[BrokerSyncBroker]):
    """Cuts do not affect the agent, which has connections of its own."""

    def __init__(self, source: BrokerSyncBroker, target: BrokerSyncBroker, *, delay_s: float = 0.0) -> None:
        super().__init__(source, target, delay_s=delay_s)
        self.agent = Agent(source, target)

    def _step(self) -> float | None:
        wait_s = super()._step()
        now_s = self.source.clock.now_s()
        waits = [item - now_s for item in self.agent.work(now_s)] + ([] if wait_s is None else [wait_s])
        return max(0.0, min(waits)) if waits else None
