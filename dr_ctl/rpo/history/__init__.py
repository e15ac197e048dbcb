"""The history: readings kept as Parquet rows, and read again."""
