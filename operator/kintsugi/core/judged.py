"""What the judge found, as far as the decision and the report need it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kintsugi.core.finding import InstanceVerdict


@dataclass(frozen=True, slots=True)
class Judged:
    """Verdicts by pod UID; whether every trigger has the data it needs, and what is missing; findings of pools."""

    verdicts: Mapping[str, InstanceVerdict]
    data_fresh: bool = True
    data_reason: str = "Fresh"
    data_message: str = ""
    pool_findings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
