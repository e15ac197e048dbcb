"""The tests; each folder mirrors a package of dr_ctl."""
