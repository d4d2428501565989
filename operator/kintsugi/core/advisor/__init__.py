"""Suggestions from live traffic, each with its arithmetic. Nothing in here acts, and nothing is guessed."""
