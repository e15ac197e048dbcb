"""The backtest: what estimates would have said of the past."""
