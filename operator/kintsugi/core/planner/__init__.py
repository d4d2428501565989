"""What fits, how much of it, and what it costs: arithmetic on stated inputs, every figure with its band and source."""
