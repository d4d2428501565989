"""Instants, between the epoch seconds that the core counts in and the datetimes that the API writes."""

from datetime import UTC, datetime


def moment(epoch: float) -> datetime:
    """Epoch seconds as an aware datetime."""
    return datetime.fromtimestamp(epoch, UTC)


def epoch(when: datetime) -> float:
    """An aware datetime as epoch seconds."""
    return when.timestamp()
