"""Plans for verbs that a mirror does in its own manner. Pure; named as in `acts`."""

from dr_ctl.topologies.mirror.drafts import reinstate, shipping

__all__ = ("reinstate", "shipping")
