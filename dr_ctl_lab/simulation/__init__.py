"""A system whose time is simulated: one thing happens at a time, and where all wait, time jumps to what is next."""
