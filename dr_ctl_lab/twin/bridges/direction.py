"""The bridges of one broker: logins and rights at the peer. One refusal stops all bridges."""

from dr_ctl_lab.twin.bridge import Bridge
from dr_ctl_lab.twin.bridged_direction import BridgedDirection
from dr_ctl_lab.twin.bridges.broker import BridgesBroker
from dr_ctl_lab.twin.messages import Message


class BridgesDirection(BridgedDirection[BridgesBroker]):
    def _accepts_login(self, bridge: Bridge) -> bool:
        core_bridge = self.source.bridges.get(bridge.name)
        return core_bridge is not None and self._stop_if_refused(
            accepted=self.target.users.get(core_bridge.user) == core_bridge.password
        )

    def _accepts_message(self, bridge: Bridge, message: Message) -> bool:
        del message
        core_bridge = self.source.bridges[bridge.name]
        allowed = self.target.security.may(core_bridge.user, "send", core_bridge.address)
        if not allowed and self.source.loses_refused:
            now_s = self.source.clock.now_s()
            bridge.hand_over(now_s)
            bridge.confirm(now_s)
        return self._stop_if_refused(accepted=allowed)

    def _stop_if_refused(self, *, accepted: bool) -> bool:
        if not accepted:
            self.source.stop_bridges()
        return accepted
