"""Acts of the verbs that the continuity plugin runs in its own manner; a file a verb, as in `drafts`."""

from dr_ctl.topologies.continuity.acts import activate, catch_up, drain, reconcile, reinstate, residue

__all__ = ("activate", "catch_up", "drain", "reconcile", "reinstate", "residue")
