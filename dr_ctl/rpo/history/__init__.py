"""The history: what was seen, kept as Parquet rows, and read again."""
