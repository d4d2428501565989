"""How the HTTP server of a simulated engine is set up."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the server listens and how it treats requests. Port 0 = any free one; admin_port None = no admin."""

    host: str = "127.0.0.1"
    port: int = 0
    admin_host: str = "127.0.0.1"
    admin_port: int | None = 0
    api_key: str | None = None
    served_names: tuple[str, ...] = ("deepseek-v4",)
    adapters: tuple[str, ...] = ()
    """Names of LoRA adapters, listed beside the model and served like it."""
    max_model_len: int = 131_072
    bytes_per_token: int = 4
    """A prompt of n bytes counts as n / this many tokens, rounded up."""
    natural_tokens: int = 60
    """Tokens after which the model stops by itself where the request sets no limit."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Known answers: a prompt that ends with a key is answered with its words."""
    seed: int = 0
