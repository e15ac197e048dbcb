"""The history: looks kept as Parquet rows, and read again."""
