"""Time in which the monitor looked at a site that served, and got no whole answer."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from dr_ctl.rpo.core.columns import SITE, Columns, Flags, Ints, last_true
from dr_ctl.rpo.core.cut import AWAY_US, DOWN, NO_ROLE, STANDBY, Outflows, roles_of


@dataclass(frozen=True, slots=True)
class Silence:
    """Stretches of such time, in order; `lacks`: none of that pair's outflows was looked at at all."""

    begin: Ints
    end: Ints
    lacks: Flags

    @classmethod
    def of(cls, rows: Columns, flows: Outflows) -> Self:
        """Between two rows of a site's role of which one came without any outflow of its pair. The role of a site that
        does not answer is the one that it had before."""
        of_site = rows.take(np.flatnonzero(rows.kind == SITE))
        order = np.lexsort((of_site.us, of_site.pair))
        pair, us, role = of_site.pair[order], of_site.us[order], roles_of(rows.words)[of_site.name[order]]
        new = np.ones(len(pair), bool)
        new[1:] = pair[1:] != pair[:-1]
        known = last_true(role != NO_ROLE, new)
        role = np.where(known >= 0, role[np.maximum(known, 0)], NO_ROLE) if len(role) else role
        looked: dict[int, Ints] = {}
        for code in np.unique(pair).tolist():
            mine = [n for n, key in enumerate(flows.keys) if code < 0 or key[0] == rows.words[code]]
            looked[code] = np.unique(flows.us[np.isin(flows.flow, mine)])
        answered = np.zeros(len(us), bool)
        lacks = np.zeros(len(us), bool)
        for code, times in looked.items():
            at = pair == code
            answered[at] = np.isin(us[at], times)
            lacks[at] = code >= 0 and not len(times)
        silent = ~new[1:] & ~(answered[1:] & answered[:-1]) & (us[1:] - us[:-1] <= AWAY_US) & (us[1:] > us[:-1])
        at = np.flatnonzero(silent & (role[:-1] != STANDBY) & (role[:-1] != DOWN))
        at = at[np.argsort(us[at], kind="stable")]
        return cls(us[at], us[at + 1], lacks[at])

    def at(self, us: Ints) -> Flags:
        return self._within(us, np.ones(len(self.begin), bool))

    def lacks_a_pair(self, us: Ints) -> Flags:
        return self._within(us, self.lacks)

    def _within(self, us: Ints, which: Flags) -> Flags:
        """Whether moments lie in some of the stretches."""
        begin, end = np.sort(self.begin[which]), np.sort(self.end[which])
        found: Flags = np.searchsorted(begin, us, "right") > np.searchsorted(end, us, "right")
        return found
