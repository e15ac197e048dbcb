"""The calls and ends of every operation on every topology, with and without faults, as text files."""
