"""What every operation does on every topology, calm and under faults, as text files: a change of it changes them."""
