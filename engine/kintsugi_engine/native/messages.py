"""What the server and the process that computes say to each other. Standard library only: the server needs no torch."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. `top_k` 0 and `top_p` 1 leave all in; `logprobs` None asks for none."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_tokens: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Submit:
    """A request to be worked on."""

    id: int
    tokens: tuple[int, ...]
    sampling: Sampling
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Abort:
    """The client is gone, or has all it wants: free what the request holds."""

    id: int


@dataclass(frozen=True, slots=True)
class Compact:
    """Give cached memory of the GPU back."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End now."""


Order = Submit | Abort | Compact | Stop


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known once the model is loaded. Sizes in bytes, lengths in tokens."""

    slots: int
    slot_bytes: int
    max_tokens: int
    eos_ids: frozenset[int]
    model_bytes: int
    device: str
    dtype: str
    architecture: str
    vocabulary: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The start, or the engine, failed. `refused`: the text is for a person and is all that is said."""

    why: str
    refused: bool


@dataclass(frozen=True, slots=True)
class Chosen:
    """One token; `logprob` and `top` (token, logprob) only where asked for."""

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """What a step brought for one request. `finish`: stop, length, abort or error, '' while it goes on."""

    id: int
    chosen: tuple[Chosen, ...]
    finish: str = ""
    corrupted: bool = False
    """The model gave values that are no numbers."""


@dataclass(frozen=True, slots=True)
class Gauges:
    """State after a step."""

    running: int = 0
    waiting: int = 0
    written_tokens: int = 0
    """Tokens of live requests that lie in slots."""
    held_tokens: int = 0
    """Tokens that the slots of live requests hold at most."""
    held_slots: int = 0
    fragmentation: float | None = None
    reserved_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step: one piece of a prompt or several, and one token for every running request. Moments are monotonic."""

    gauges: Gauges
    ended: float
    prompt_tokens: int = 0
    decoded: bool = False
    """Whether a running request got a token, beside those whose prompts were computed."""
    new_tokens: int = 0
    admitted: tuple[tuple[int, float], ...] = ()
    """(request, moment) of those that got a slot."""
    pieces: tuple[Piece, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Compacted:
    """Bytes that the GPU's allocator had reserved; None without a GPU."""

    reserved: tuple[int, int] | None


Report = Facts | Failed | Step | Compacted
