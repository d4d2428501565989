"""Engines as the operator needs them: a page of metrics, and canaries that outlive a pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kintsugi.core.snapshot import Canary, CanaryResult, Scrape


@dataclass(frozen=True, slots=True)
class Address:
    """Where an engine listens; `api_key` is sent as a bearer token where the engine asks for one."""

    ip: str
    port: int = 8000
    api_key: str | None = None
    model: str = ""
    """The served model name that canaries ask for."""


class EnginePort(Protocol):
    """Direct contact with engines, never through a router."""

    async def scrape(self, addresses: Sequence[Address], timeout: float) -> list[Scrape]:
        """One `/metrics` page of each address, side by side, each within `timeout` seconds."""
        ...

    def send_canary(self, address: Address, canary: Canary, abandon_after: float) -> None:
        """Start a one-token request in the background; closed after `abandon_after` seconds."""
        ...

    def canary_results(self) -> list[CanaryResult]:
        """Canaries that ended since the last call, in order of their end."""
        ...

    async def ask(self, address: Address, timeout: float) -> bool:
        """One real one-token request: True where it was answered whole."""
        ...

    async def can_compact(self, address: Address, timeout: float) -> bool | None:
        """Whether the engine can give cached allocator memory back; None where it does not say."""
        ...

    async def compact(self, address: Address, timeout: float) -> bool:
        """Have the engine give cached allocator memory back, in place: True where it says that it did."""
        ...

    async def record(self, address: Address, timeout: float) -> tuple[Mapping[str, Any], ...] | None:
        """What each rank of the engine measured last, as it says it (`contract.RECORD_PATH`); () where the engine keeps no
        such record; None where it does not say."""
        ...

    async def models(self, address: Address, timeout: float) -> frozenset[str] | None:
        """Names of the models and adapters that the engine lists; None where it does not say."""
        ...
