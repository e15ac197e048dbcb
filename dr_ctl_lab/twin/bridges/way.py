"""The bridges of one broker at the listener of its peer: logins, and the effect of a refusal on all bridges."""

from dr_ctl_lab.twin.bridge import Bridge
from dr_ctl_lab.twin.bridged_way import BridgedWay
from dr_ctl_lab.twin.bridges.broker import BridgesBroker
from dr_ctl_lab.twin.messages import Message


class BridgesWay(BridgedWay[BridgesBroker]):
    def _lets_in(self, bridge: Bridge) -> bool:
        own = self.source.bridges.get(bridge.name)
        return own is not None and self._unless_refused(known=self.target.users.get(own.user) == own.password)

    def _takes(self, bridge: Bridge, message: Message) -> bool:
        del message
        own = self.source.bridges[bridge.name]
        allowed = self.target.security.may(own.user, "send", own.address)
        if not allowed and self.source.loses_refused:
            now_s = self.source.clock.now_s()
            bridge.arrived(now_s)
            bridge.confirm(now_s)
        return self._unless_refused(known=allowed)

    def _unless_refused(self, *, known: bool) -> bool:
        if not known:
            self.source.stop_bridges()
        return known
