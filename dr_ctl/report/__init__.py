"""A run's journal turned into one HTML page: `reading` loads, `view` and its parts compute, `html` places."""
