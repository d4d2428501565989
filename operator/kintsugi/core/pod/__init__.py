"""The pod of one instance: what the user wrote, with defaults only where nothing was said."""
