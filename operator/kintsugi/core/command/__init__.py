"""The engine's command line: what will be said, and which field of the spec said it."""
