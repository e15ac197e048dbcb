"""Plans for verbs that the plugin needs in its own manner. Pure; named as in `acts`."""

from dr_ctl.topologies.continuity.drafts import probe, quarantine, reinstate, shipping

__all__ = ("probe", "quarantine", "reinstate", "shipping")
