"""The commands `dr-ctl lab` and `dr-ctl demo`, which dr-ctl finds by their entry points."""
