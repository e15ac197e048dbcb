"""The use-cases: each takes values and ports and returns a result. None prints, asks or parses words."""
