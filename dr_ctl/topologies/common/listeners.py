"""Proves that clients are kept out, or let in: by every listener's flag, and by an attempt to connect as they do.

Flags lie: an acceptor whose port is taken by another process says that it is started.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dr_ctl.core.errors import BrokerError
from dr_ctl.core.findings import found
from dr_ctl.core.model import Finding, Role, some
from dr_ctl.core.system import in_background
from dr_ctl.engine.plan import Call
from dr_ctl.engine.ports import Done, Outcome, Refused, StepContext
from dr_ctl.engine.waiting import until
from dr_ctl.stomp_io.address import Closed, Connected, Greeting, Silent
from dr_ctl.stomp_io.address import Refused as LoginDenied
from dr_ctl.topologies.common.access import FOR_FENCE, Access
from dr_ctl.topologies.common.calls import left_of
from dr_ctl.topologies.common.observer import AnyObserver
from dr_ctl.topologies.common.snapshot import Silent as NoAnswer
from dr_ctl.topologies.common.view import Broker

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Why a pair is not shown to serve: by a listener's flag, or because no client is let in. `lets_in`: a client
    was."""

    text: str
    by_flag: bool
    lets_in: bool = False


class Listeners:
    """The client listeners of one command's sites. Remembers where a client was greeted: only there does a greeting
    that fails prove anything."""

    def __init__(self, observer: AnyObserver) -> None:
        self._observer = observer
        self.greeted: set[Key] = set()

    def greetings(self, accesses: Sequence[Access[Broker]]) -> dict[Key, Greeting | None]:
        answers = self._observer.together(
            lambda access: access.greet(timeout_s=self._observer.timeouts.greet_s), accesses
        )
        return {(access.site, access.pair): greeting for access, greeting in zip(accesses, answers, strict=True)}

    def greet(self, site: str) -> list[Finding]:
        """Connect to a serving site as clients do, and remember where that worked."""
        findings = []
        for key, greeting in self.greetings(self._observer.at(site)).items():
            if isinstance(greeting, Connected):
                self.greeted.add(key)
            else:
                broker = "/".join(key)
                findings.append(
                    found("DR-FENCE-001.no_address", broker=broker)
                    if greeting is None
                    else found("DR-FENCE-001", broker=broker, why=greeting.because)
                )
        return findings

    def closed(
        self, site: str, context: StepContext, within_s: float, again: Callable[[Sequence[Broker]], object]
    ) -> Outcome:
        """Show that no client gets in: every listener's flag, and no greeting where there was one before; `again` sends
        what is missing by a reading."""
        greeted = [access for access in self._observer.at(site) if (access.site, access.pair) in self.greeted]
        # A client that is let in shows an open listener, whether one was greeted there before or not.
        probed = [access for access in self._observer.at(site) if access in greeted or access.fenced_by_listener]

        def look() -> tuple[Sequence[Broker], str | None]:
            views = self._answering(site)
            if opened := [listener.name for view in views for listener in view.listeners if listener.started]:
                return views, f"acceptor {', '.join(opened)} says it is open"
            if contends := [name for view in views for name in view.fence.contends]:
                return views, f"lock coordinator {', '.join(contends)} is not stopped"
            if self.let_in(probed):
                return views, "a client is still let in"
            beside = [each for view in views for each in self._beside(view)]
            return views, f"clients go on behind the fence: {some(beside)}" if beside else None

        poll_s = self._observer.timeouts.poll_s
        views, why = until(
            context,
            look,
            holds=lambda now: now[1] is None,
            within_s=within_s,
            poll_s=poll_s,
            meanwhile=lambda now: again(now[0]),
        ).look
        if why is not None:
            return Refused(f"{site}: {why}")
        findings = tuple(self._not_lasting(views))
        lasts = bool(views) and not findings and all(view.fence.shut_out for view in views)
        tail = "; a restart does not let clients in" if lasts else ""
        if len(greeted) == len(self._observer.at(site)):
            text = f"clients are out: listeners closed, test login failed{tail}"
            return Done(text, {"proof": "attempt", "roles_kept_out": lasts}, findings)
        named = all(access.stomp is not None for access in self._observer.at(site))
        finding = found("DR-FENCE-002" if named else "DR-FENCE-002.no_address", site=site)
        return Done(
            f"listeners closed, by flag only{tail}", {"proof": "flag", "roles_kept_out": lasts}, (finding, *findings)
        )

    def _beside(self, view: Broker) -> list[str]:
        """Clients on listeners that the fence leaves open, by what was last seen of the peer."""
        peers = next(brokers for site, brokers in self._observer.brokers.items() if site != view.site)
        newest = peers[view.pair].newest
        return [*view.fence.strangers(), *view.fence.beside_link(newest[1] if newest is not None else None)]

    def _answering(self, site: str) -> Sequence[Broker]:
        """The brokers that answer. A broker that is down lets nobody in; any other silent broker is an error."""
        try:
            return self._observer.look_at(site, parts=FOR_FENCE)
        except BrokerError:
            snapshot = self._observer.look_once()
        for each in snapshot.sites[site].values():
            if isinstance(each, NoAnswer) and each.role is not Role.DOWN:
                raise each.error
        return snapshot.views(site)

    def _not_lasting(self, views: Sequence[Broker]) -> Iterator[Finding]:
        """Report the gaps of the lasting fence that the settings ask for; the listeners are closed all the same."""
        keep_out = [(view, lasting) for view in views if (lasting := view.config.lasting) is not None]
        shut_out = [self._observer.brokers[view.site][view.pair] for view, _ in keep_out if view.fence.shut_out]
        left = dict(zip(shut_out, self._observer.together(lambda access: access.uncovered(), shut_out), strict=True))
        for view, lasting in keep_out:
            access = self._observer.brokers[view.site][view.pair]
            name, roles = f"{view.site}/{view.pair}", ", ".join(lasting.roles)
            if access not in left:
                yield found("DR-FENCE-007", broker=name, roles=roles)
            elif left[access]:
                yield found("DR-FENCE-008", broker=name, roles=roles, left=some(left[access]))

    def why_not_serving(self, accesses: Sequence[Access[Broker]]) -> dict[str, WhyNot | None]:
        """Say of each pair why it is not shown to serve, or None."""

        def flags(access: Access[Broker]) -> tuple[str, ...] | BrokerError:
            try:
                return access.open_listeners(timeout_s=self._observer.timeouts.flag_s)
            except BrokerError as error:
                return error

        asked = in_background(lambda: self._observer.together(flags, accesses), "flags")
        greetings = self.greetings(accesses)
        why_not: dict[str, WhyNot | None] = {}
        for access, opened in zip(accesses, asked.result(), strict=True):
            greeting = greetings[access.site, access.pair]
            if isinstance(opened, BrokerError):
                why_not[access.pair] = WhyNot(f"it does not answer: {opened}", by_flag=False)
                continue
            shut = [name for name in access.config.clients if name not in opened]
            why_not[access.pair] = None
            if shut:
                why_not[access.pair] = WhyNot(
                    f"acceptor {', '.join(shut)} is closed", by_flag=True, lets_in=isinstance(greeting, Connected)
                )
            if isinstance(greeting, Closed | Silent):
                # A refused login is an answer of the broker all the same: the listener is open, only not to this user.
                why_not[access.pair] = WhyNot(f"no client is let in: {greeting.because}", by_flag=False)
        return why_not

    def let_in(self, accesses: Sequence[Access[Broker]]) -> bool:
        """Say whether a client is let in anywhere, whatever the flags say."""
        return any(isinstance(greeting, Connected) for greeting in self.greetings(accesses).values())

    def why_not(self, site: str, *, serving: bool) -> str | None:
        """Prove by attempts that a site serves with every pair, or lets nobody in; gives the reason if not."""
        accesses = self._observer.at(site)
        if serving:
            by_pair = self.why_not_serving(accesses)
            return next((why.text for why in by_pair.values() if why is not None), None)
        try:
            opened = self._observer.together(
                lambda access: access.open_listeners(timeout_s=self._observer.timeouts.flag_s), accesses
            )
        except BrokerError as error:
            return f"it does not answer: {error}"
        shut = not any(opened)
        probed = [access for access in accesses if access.fenced_by_listener]
        return None if shut and not (probed and self.let_in(probed)) else "a client may be let in"

    def why_not_open_again(self, site: str, opens: Sequence[Call]) -> str | None:
        """Say why the listeners that these calls open are not shown to be open."""
        pairs = {call.unit for call in opens}
        if left := left_of(opens, self._observer.look_at(site, pairs)):
            return f"effect not seen: {some(left)}"
        mine = [access for access in self._observer.at(site) if access.pair in pairs]
        for key, greeting in self.greetings(mine).items():
            # Nobody at the port contradicts the flag, whoever asks; any other no counts only where a yes was heard.
            if isinstance(greeting, Closed) or (key in self.greeted and isinstance(greeting, Silent | LoginDenied)):
                return f"no client is let in: {greeting.because}"
        return None
