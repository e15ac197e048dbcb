"""The backtest: estimates for past moments, compared with the truth."""
