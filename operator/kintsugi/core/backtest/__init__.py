"""Backtest: what the judge and the gates would have said of a history, replayed as it was recorded."""
