"""The one error of the native runtime that is meant for a person."""


class Refused(Exception):
    """What was asked for can't be done; the text says what, why and the cure. Ends a start with exit code 1."""
