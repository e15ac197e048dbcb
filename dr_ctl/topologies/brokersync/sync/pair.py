"""The agent of one pair: follows what is consumed, believes it once the counters agree, deletes the copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dr_ctl.core.clock import Clock
from dr_ctl.core.errors import BrokerError, LoginRefused
from dr_ctl.core.model import Json
from dr_ctl.topologies.brokersync.sync.accounts import SURE, Account
from dr_ctl.topologies.brokersync.sync.batches import Waiting
from dr_ctl.topologies.brokersync.sync.comparing import residue
from dr_ctl.topologies.brokersync.sync.ports import Glance, Primary, Standby
from dr_ctl.topologies.brokersync.sync.queue import Queue

HEAR_S: Final = 0.05
LOOK_EVERY_S: Final = 0.4
LOST_S: Final = 8.0
"""A serving broker that answers nothing for so long is lost."""
AGAIN_S: Final = 1.0
COMPARE_AGAIN_S: Final = 10.0
"""After a browse that was not whole: each takes memory of the serving broker."""
DELETE_AT_MOST_S: Final = 0.5
"""Then what was announced meanwhile is heard before more is deleted."""
LAST_WORDS_S: Final = 2.0
"""For what was announced before the doors were closed."""

Held = Callable[[], str | None]


class Pair:
    """For one thread. Broker failures end a step early, and show in `over` and `silent`; a login that is refused is
    raised, because to try it again locks it out."""

    def __init__(
        self, name: str, primary: Primary, standby: Standby, clock: Clock, remembered: Mapping[str, Json]
    ) -> None:
        self.name = name
        self.queues: dict[str, Queue] = {}
        self.over: str | None = None
        self.primary_silent: str | None = None
        self.standby_silent: str | None = None
        self._primary, self._standby, self._clock = primary, standby, clock
        self._remembered: Mapping[str, Any] = remembered
        self._start: str | None = None
        self._answered = clock.monotonic()
        self._look_at = self._delete_at = 0.0
        self._listens = self._was_held = self._goes_on = self._restarted = False
        self._closed_there = False
        self._believed: dict[str, Waiting] = {}

    def step(self, held: Held) -> None:
        try:
            self._hear()
            if self._clock.monotonic() >= self._look_at:
                glance = self._looked()
                self._listen(glance)
                self._ends_where_closed(glance, held)
        except LoginRefused:
            raise
        except BrokerError as error:
            self._primary_failed(error)
            return
        self._delete(held)

    def go_on(self) -> None:
        """Forget what vanished now; the next look, which is at once, forgets what the counters say then."""
        self._goes_on = True
        self._look_at = 0.0
        for queue in self.queues.values():
            queue.vanished = queue.unproved = 0
            queue.forget()

    @property
    def refused(self) -> str | None:
        """Why the waiting broker's management does not delete."""
        return self._standby.refused

    def remembers(self) -> dict[str, Json]:
        if self._start is None:
            return dict(self._remembered)
        accounts = {name: queue.account for name, queue in self.queues.items()}
        known: dict[str, Json] = {name: account.known for name, account in accounts.items()}
        shown: dict[str, Json] = {name: account.shown for name, account in accounts.items()}
        deleted: dict[str, Json] = {name: account.deleted for name, account in accounts.items()}
        return {"start": self._start, "known": known, "shown": shown, "deleted": deleted}

    def close(self) -> None:
        self._primary.close()
        self._standby.close()

    def _hear(self) -> bool:
        """Say whether anything was announced."""
        if not self._listens:
            self._clock.sleep(HEAR_S)
            return False
        heard = self._primary.heard(HEAR_S)
        for name, id_ in heard:
            self.queues[name].hear(id_)
        return bool(heard)

    def _looked(self) -> Glance:
        """Look, and believe what came before the look, unless the counters tell another tale."""
        announced = {name: len(queue.announced) for name, queue in self.queues.items()}
        glance = self._primary.glance()
        self._answered = self._clock.monotonic()
        self._look_at = self._answered + LOOK_EVERY_S
        self.primary_silent = None
        self._look_there()
        if self._start not in (None, glance.start):
            self._deaf()  # the broker was away: announcements may have been missed
            # Earlier ids were confirmed by the counters: they stay consumed, whatever the broker came back with.
            self._believed = {name: queue.waiting for name, queue in self.queues.items()}
            self.queues.clear()
            self._restarted = True
        self._start = glance.start
        if fresh := self._taken_up(glance):
            glance = self._begin(fresh, glance)
        elif self._suspects(glance):
            glance = self._looked_well(glance)
        for name, queue in self.queues.items():
            if (counters := glance.queues.get(name)) is None:
                continue
            if queue.suspects(counters):
                queue.doubt(counters)
            else:
                queue.confirm(counters, announced.get(name, 0))
        return glance

    def _look_there(self) -> None:
        """Whether the waiting site's clients are kept out, in the same look; a site that lets them in may serve."""
        self._closed_there = False
        if self._clock.monotonic() < self._delete_at:
            return
        try:
            self._closed_there = not self._standby.is_open()
            if not self._closed_there:
                self.over = "the waiting site lets clients in too, so that which of them serves cannot be told"
        except LoginRefused:
            raise
        except BrokerError as error:
            self._standby_failed(error)

    def _standby_failed(self, error: BrokerError) -> None:
        self.standby_silent = str(error)
        self._closed_there = False
        self._delete_at = self._clock.monotonic() + AGAIN_S
        for queue in self.queues.values():
            queue.to_compare = True

    def _suspects(self, glance: Glance) -> bool:
        return any(queue.suspects(glance.queues[name]) for name, queue in self.queues.items() if name in glance.queues)

    def _looked_well(self, least: Glance) -> Glance:
        """The least that any of many looks says to have vanished."""
        for _ in range(SURE - 1):
            self._clock.sleep(HEAR_S)
            more = self._primary.glance()
            both = {
                name: min(counters, more.queues.get(name, counters), key=lambda each: each.unacknowledged)
                for name, counters in least.queues.items()
            }
            least = Glance(more.start, more.is_open, both)
            if not self._suspects(least):
                break
        return least

    def _taken_up(self, glance: Glance) -> list[str]:
        """Take up queues that are copied; returns those whose counters say nothing yet.

        Figures of an earlier agent for this start of the broker count on, and a broker that started anew counts from
        zero. Any other queue counts from now: its counters include copies deleted while the site waited."""
        same = self._remembered.get("start") == glance.start
        earlier, shown, deleted = (
            self._remembered.get(key, {}) if same else {} for key in ("known", "shown", "deleted")
        )
        fresh = [name for name in glance.queues if name not in self.queues]
        for name in fresh:
            believed = self._believed.pop(name, Waiting())
            account = Account(earlier.get(name, 0), shown.get(name, 0), deleted.get(name, 0), len(believed))
            self.queues[name] = Queue(self.name, name, account, believed)
        if self._goes_on:
            self._goes_on = False
            for queue in self.queues.values():
                queue.answered_for = True
            return list(glance.queues)
        return [] if self._restarted else [name for name in fresh if name not in earlier]

    def _begin(self, names: Sequence[str], first: Glance) -> Glance:
        looks = [first]
        for _ in range(SURE - 1):
            self._clock.sleep(HEAR_S)
            looks.append(self._primary.glance())
        for name in names:
            self.queues[name].go_on([each.queues[name] for each in looks if name in each.queues])
        return looks[-1]

    def _listen(self, glance: Glance) -> None:
        """Compare both sites for queues that are followed only now: clients may have consumed unheard."""
        for name in self._primary.listen(list(glance.queues)):
            self.queues[name].forget()
        self._listens = True

    def _deaf(self) -> None:
        self._primary.deaf()
        self._listens = False

    def _ends_where_closed(self, glance: Glance, held: Held) -> None:
        if glance.is_open:
            return
        self.over = "its clients' connectors are closed: it serves nobody any more"
        until = self._clock.monotonic() + LAST_WORDS_S
        while self._hear() and self._clock.monotonic() < until:
            pass
        self._looked()
        self._delete(held)

    def _primary_failed(self, error: BrokerError) -> None:
        self.primary_silent = str(error)
        self._look_at = self._clock.monotonic() + AGAIN_S
        self._deaf()
        if self._clock.monotonic() - self._answered > LOST_S:
            self.over = f"it has not answered for {LOST_S:g} s: {error}"
        else:
            self._clock.sleep(HEAR_S)

    def _delete(self, held: Held) -> None:
        if held() is not None:
            self._was_held = True
            return
        if self._was_held:
            # The holder may have deleted copies too.
            for queue in self.queues.values():
                queue.forget()
            self._was_held = False
            return
        if not self._closed_there:
            return
        try:
            for queue in list(self.queues.values()):  # a look may find others
                if queue.vanished == 0:
                    self._compare(queue)
                    self._clean(queue, held)
            self.standby_silent = None
        except LoginRefused:
            raise
        except BrokerError as error:
            self._standby_failed(error)

    def _compare(self, queue: Queue) -> None:
        """Compare both sites; believe it where the counters agree afterwards that only clients took messages."""
        if not queue.to_compare or self._clock.monotonic() < queue.compare_not_before:
            return
        at = self._clock.now()
        found = residue(self._primary, self._standby, queue.name)
        queue.account.gave_back(found.shown)
        if found.why_not:
            queue.compare_not_before = self._clock.monotonic() + COMPARE_AGAIN_S
        if found.ids is None:
            queue.not_compared(at, found.why_not)
            return
        counters = self._looked().queues.get(queue.name)
        if queue.vanished == 0 and self._follows(queue) and self._closed_there:
            queue.compared(at, found.ids, found.why_not, counters)

    def _follows(self, queue: Queue) -> bool:
        """Say whether it is one of this start of the serving broker."""
        return self.queues.get(queue.name) is queue

    def _clean(self, queue: Queue, held: Held) -> None:
        until = self._clock.monotonic() + DELETE_AT_MOST_S
        while self._clock.monotonic() < until and held() is None and self._follows(queue) and self._closed_there:
            if (batch := queue.waiting.due(self._clock.monotonic())) is None:
                return
            try:
                removed = self._standby.remove(queue.name, batch.ids)
            except BrokerError:
                queue.waiting.give_back(batch)
                raise
            before = queue.waiting.deleted
            queue.waiting.answered(batch, removed, self._clock.monotonic())
            queue.account.deleted += queue.waiting.deleted - before
