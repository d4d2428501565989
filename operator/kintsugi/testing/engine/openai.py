"""The OpenAI-compatible protocol as vLLM speaks it: reading requests, writing answers, errors."""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
_TEMPLATE_TOKENS: Final = 4
"""Assumed overhead of a chat template, per message."""
_MOST_LOGPROBS: Final = 20
"""vLLM's default of `--max-logprobs`."""
_MARGIN: Final = 6.0
"""Nats between the likeliest token and the next one: a simulated engine is always sure."""
_DEFAULT_COMPLETION_TOKENS: Final = 16
"""The protocol's default of `max_tokens` for completions."""


class ApiError(Exception):
    """An answer other than 200, in vLLM's form."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param

    def body(self) -> dict[str, object]:
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.status}
        return {"error": error}


def bad_request(message: str, param: str | None = None) -> ApiError:
    return ApiError(400, "BadRequestError", message, param)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, understood."""

    chat: bool
    model: str
    prompt: bytes
    """What prefix caching and the answer are computed from."""
    prompt_tokens: int
    max_tokens: int | None
    """None = until the model stops by itself."""
    stream: bool
    include_usage: bool
    logprobs: int | None = None
    """So many likeliest tokens are told for each token of a completion that is not a stream."""
    token_ids: bool = False
    """Token ids are told beside the text."""
    as_token_ids: bool = False
    """Tokens are named by their ids among the log-probabilities."""


def read_request(path: str, document: object, bytes_per_token: int) -> Asked:
    """Understand the body of a request to `path`. Raises ApiError 400, which names the field."""
    if not isinstance(document, dict):
        raise bad_request("the body must be a JSON object")
    chat = path == CHAT
    prompt, tokens = (_messages if chat else _prompt)(document, bytes_per_token)
    limit = _max_tokens(document, chat)
    options = document.get("stream_options")
    return Asked(
        chat=chat,
        model=_model(document),
        prompt=prompt,
        prompt_tokens=max(1, tokens),
        max_tokens=limit,
        stream=bool(document.get("stream", False)),
        include_usage=bool(isinstance(options, dict) and options.get("include_usage")),
        logprobs=None if chat else _logprobs(document),
        token_ids=bool(document.get("return_token_ids")),
        as_token_ids=bool(document.get("return_tokens_as_token_ids")),
    )


def _model(document: dict[str, object]) -> str:
    model = document.get("model", "")
    if not isinstance(model, str):
        raise bad_request("model must be a string", "model")
    return model


def _max_tokens(document: dict[str, object], chat: bool) -> int | None:
    for name in ("max_completion_tokens", "max_tokens") if chat else ("max_tokens",):
        value = document.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise bad_request(f"{name} must be at least 1, got {value}.", name)
        return value
    return None if chat else _DEFAULT_COMPLETION_TOKENS


def _logprobs(document: dict[str, object]) -> int | None:
    value = document.get("logprobs")
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_LOGPROBS:
        raise bad_request(f"logprobs must be 0 to {_MOST_LOGPROBS}, got {value}.", "logprobs")
    return value


def _tokens(data: bytes, bytes_per_token: int) -> int:
    return -(-len(data) // bytes_per_token)


def _prompt(document: dict[str, object], bytes_per_token: int) -> tuple[bytes, int]:
    prompt = document.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        data = prompt.encode()
        return data, _tokens(data, bytes_per_token)
    if isinstance(prompt, list) and prompt and all(type(one) is int and 0 <= one < 2**32 for one in prompt):
        return b"".join(one.to_bytes(4, "big") for one in prompt), len(prompt)
    raise bad_request("prompt must be a text or a list of token ids that is not empty", "prompt")


def _messages(document: dict[str, object], bytes_per_token: int) -> tuple[bytes, int]:
    messages = document.get("messages")
    if not isinstance(messages, list) or not messages:
        raise bad_request("messages must be a list that is not empty", "messages")
    parts: list[bytes] = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise bad_request("each message needs a role and content", "messages")
        content = message.get("content")
        text = content if isinstance(content, str) else json.dumps(content, separators=(",", ":"))
        parts.append(f"{message['role']}\n{text}\n".encode())
    if tools := document.get("tools"):
        parts.insert(0, json.dumps(tools, separators=(",", ":")).encode())
    data = b"".join(parts)
    return data, _tokens(data, bytes_per_token) + _TEMPLATE_TOKENS * len(messages)


class Writer:
    """Builds the answer of one request: whole, or as server-sent events."""

    def __init__(self, asked: Asked, request_id: str, created: int, served: str) -> None:
        self._asked = asked
        kind = "chat.completion" if asked.chat else "text_completion"
        if asked.stream and asked.chat:
            kind += ".chunk"
        prefix = "chatcmpl" if asked.chat else "cmpl"
        self._head = {"id": f"{prefix}-{request_id}", "object": kind, "created": created, "model": served}
        self._open = json.dumps(self._head)[:-1]

    def _usage(self, produced: int, cached: int) -> dict[str, object]:
        prompt = self._asked.prompt_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": produced,
            "total_tokens": prompt + produced,
            "prompt_tokens_details": {"cached_tokens": cached} if cached else None,
        }

    def first(self) -> bytes:
        """What a stream begins with before any token: chat names the role, completions say nothing."""
        if not self._asked.chat:
            return b""
        return self._event('{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}')

    def piece(self, words: Sequence[str], finish_reason: str | None) -> bytes:
        """The event that carries new tokens; like vLLM it may hold several."""
        text = json.dumps("".join(words))
        reason = f'"{finish_reason}"' if finish_reason else "null"
        if self._asked.chat:
            return self._event(f'{{"index":0,"delta":{{"content":{text}}},"finish_reason":{reason}}}')
        return self._event(f'{{"index":0,"text":{text},"logprobs":null,"finish_reason":{reason}}}')

    def _event(self, choice: str) -> bytes:
        return f'data: {self._open}, "choices": [{choice}]}}\n\n'.encode()

    def last(self, produced: int, cached: int) -> bytes:
        """The end of a stream, with the usage where the client asked for it."""
        done = b"data: [DONE]\n\n"
        if not self._asked.include_usage:
            return done
        document = {**self._head, "choices": [], "usage": self._usage(produced, cached)}
        return b"data: " + json.dumps(document).encode() + b"\n\n" + done

    def error(self, error: ApiError) -> bytes:
        """The end of a stream that fails after its 200: an error frame."""
        return b"data: " + json.dumps(error.body()).encode() + b"\n\ndata: [DONE]\n\n"

    def whole(self, words: Sequence[str], finish_reason: str, cached: int) -> dict[str, object]:
        """The answer to a request that is not a stream."""
        text = "".join(words)
        choice: dict[str, object] = {"index": 0, "logprobs": None, "finish_reason": finish_reason}
        if self._asked.logprobs is not None:
            choice["logprobs"] = self._likely(words)
        if self._asked.token_ids:
            choice["token_ids"] = [_token_id(word) for word in words]
        if self._asked.chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        return {**self._head, "choices": [choice], "usage": self._usage(len(words), cached)}

    def _likely(self, words: Sequence[str]) -> dict[str, object]:
        """Log-probabilities of each token, with the next best ones that nobody says."""
        named = [f"token_id:{_token_id(word)}" if self._asked.as_token_ids else word for word in words]
        others = [
            f"token_id:{number}" if self._asked.as_token_ids else f" other{number}"
            for number in range(1, self._asked.logprobs or 1)
        ]
        top = {other: -_MARGIN - place for place, other in enumerate(others, 0)}
        return {
            "text_offset": [0 for _ in words],
            "token_logprobs": [-0.01 for _ in words],
            "tokens": named,
            "top_logprobs": [{name: -0.01, **top} for name in named],
        }


def _token_id(word: str) -> int:
    """A number of its own for every word, beyond those of the questions."""
    return 1_000 + zlib.crc32(word.encode()) % 100_000
