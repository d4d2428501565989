"""The errors that ports raise; adapters map what they meet to these, by table."""


class PortError(Exception):
    """Something outside did not do what was asked."""


class Unavailable(PortError):
    """No answer, or a 5xx: nothing is known; look again soon."""


class Conflict(PortError):
    """The object changed since it was read (409 on update), or the UID precondition failed."""


class AlreadyExists(PortError):
    """409 on create: the object is already there."""


class NotFound(PortError):
    """404: the object is gone."""


class Refused(PortError):
    """Not now: 429, from a disruption budget or from flow control. `retry_after` in seconds, if said."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Invalid(PortError):
    """422 or 400: the API server refuses the object; the message names the field."""


class Forbidden(PortError):
    """401 or 403: a permission is missing; the message names verb and resource."""
