"""The use-cases: the functions take values and ports and return results. `cli` prints, asks and parses words."""
