"""What a body of `/v1/completions` or `/v1/chat/completions` asks for, or why it can't be done, by the field's name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kintsugi_engine.native.messages import Facts, Sampling
from kintsugi_engine.native.refused import Refused
from kintsugi_engine.native.text import Text

MOST_CHOICES: Final = 64
"""Prompts times `n` of one request."""
MOST_LOGPROBS: Final = 20
"""As vLLM's default `--max-logprobs`."""
_UNDONE: Final = {
    "best_of": (None, 1), "echo": (None, False), "suffix": (None, ""), "logit_bias": (None, {}), "tools": (None, []),
    "tool_choice": (None, "none", "auto"), "functions": (None, []), "response_format": (None, {"type": "text"}),
    "structured_outputs": (None,), "guided_json": (None,), "guided_regex": (None,), "guided_choice": (None, []),
    "guided_grammar": (None,), "prompt_logprobs": (None,), "use_beam_search": (None, False), "min_p": (None, 0),
    "continue_final_message": (None, False), "audio": (None,), "prompt_embeds": (None,), "bad_words": (None, []),
    "return_token_ids": (None, False), "truncate_prompt_tokens": (None,),
}  # fmt: skip
"""Fields that the native runtime has nothing for, with the values that ask for nothing."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One body, understood."""

    prompts: tuple[tuple[int, ...], ...]
    sampling: Sampling
    stops: tuple[str, ...]
    n: int
    stream: bool
    usage: bool
    priority: int


def understood(
    body: Mapping[str, Any], text: Text, facts: Facts, defaults: Mapping[str, Any], *, chat: bool
) -> Asked:
    """Raises Refused with the field and the reason."""
    for name, silent in _UNDONE.items():
        if name in body and body[name] not in silent:
            raise Refused(f"{name}: the native runtime can't do this")
    prompts = (_chat(body, text),) if chat else _prompts(body, text, facts.vocabulary)
    n = _whole(body, "n", 1, 1, MOST_CHOICES)
    if len(prompts) * n > MOST_CHOICES:
        raise Refused(
            f"n: {len(prompts)} prompts times {n} are more than {MOST_CHOICES} answers of one request"
        )
    longest = max(len(prompt) for prompt in prompts)
    if longest >= facts.max_tokens:
        raise Refused(
            f"prompt: {longest} tokens leave no room for an answer, a slot holds {facts.max_tokens} (--max-model-len)"
        )
    stops = body.get("stop") or ()
    stops = (stops,) if isinstance(stops, str) else tuple(stops)
    if not all(isinstance(stop, str) and stop for stop in stops):
        raise Refused("stop: must be a text, or a list of texts")
    stream = _flag(body, "stream")
    options = body.get("stream_options") or {}
    return Asked(
        prompts=prompts,
        sampling=_sampling(body, defaults, facts.max_tokens - longest, chat=chat),
        stops=stops,
        n=n,
        stream=stream,
        usage=isinstance(options, Mapping) and bool(options.get("include_usage")),
        priority=_whole(body, "priority", 0, -(1 << 31), 1 << 31),
    )


def _sampling(body: Mapping[str, Any], defaults: Mapping[str, Any], room: int, *, chat: bool) -> Sampling:
    limit = body.get("max_completion_tokens") if chat else None
    asked = {"max_tokens": limit if limit is not None else body.get("max_tokens")}
    most = _whole(asked, "max_tokens", room if chat else 16, 1, 1 << 31)
    if most > room and (not chat or asked["max_tokens"] is not None):
        raise Refused(
            f"max_tokens: {most} and the prompt don't fit a slot, which has room for {room} more tokens"
        )
    ids = body.get("stop_token_ids") or ()
    if not all(isinstance(each, int) for each in ids):
        raise Refused("stop_token_ids: must be a list of token ids")
    seed = body.get("seed")
    top_k = _whole(body, "top_k", int(defaults.get("top_k") or 0), -1, 1 << 31)
    return Sampling(
        max_tokens=min(most, room),
        temperature=_number(body, "temperature", float(defaults.get("temperature", 1.0)), 0.0, 100.0),
        top_p=_number(body, "top_p", float(defaults.get("top_p", 1.0)), 1e-9, 1.0),
        top_k=max(0, top_k),
        min_tokens=_whole(body, "min_tokens", 0, 0, 1 << 31),
        repetition_penalty=_number(body, "repetition_penalty", 1.0, 1e-9, 100.0),
        presence_penalty=_number(body, "presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=_number(body, "frequency_penalty", 0.0, -2.0, 2.0),
        seed=None if seed is None else _whole(body, "seed", 0, -(1 << 63), 1 << 63),
        stop_ids=frozenset(ids),
        ignore_eos=_flag(body, "ignore_eos"),
        logprobs=_logprobs(body, chat=chat),
    )


def _logprobs(body: Mapping[str, Any], *, chat: bool) -> int | None:
    if not chat:
        return None if body.get("logprobs") is None else _whole(body, "logprobs", 0, 0, MOST_LOGPROBS)
    if not _flag(body, "logprobs"):
        return None
    return _whole(body, "top_logprobs", 0, 0, MOST_LOGPROBS)


def _prompts(body: Mapping[str, Any], text: Text, vocabulary: int) -> tuple[tuple[int, ...], ...]:
    prompt = body.get("prompt")
    if isinstance(prompt, str) or (isinstance(prompt, list) and prompt and isinstance(prompt[0], int)):
        prompt = [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise Refused("prompt: must be a text, a list of texts, or token ids")
    return tuple(_prompt(each, text, vocabulary) for each in prompt)


def _prompt(prompt: Any, text: Text, vocabulary: int) -> tuple[int, ...]:
    if isinstance(prompt, str):
        tokens = text.tokens(prompt)
    elif isinstance(prompt, list) and all(type(each) is int and 0 <= each < vocabulary for each in prompt):
        tokens = tuple(prompt)
    else:
        raise Refused(f"prompt: must be a text, a list of texts, or token ids below {vocabulary}")
    if not tokens:
        raise Refused("prompt: has no tokens")
    return tokens


def _chat(body: Mapping[str, Any], text: Text) -> tuple[int, ...]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise Refused("messages: must be a list of messages")
    for number, message in enumerate(messages):
        if not isinstance(message.get("role"), str):
            raise Refused(f"messages[{number}].role: must be a text")
        content = message.get("content")
        if isinstance(content, list):  # parts: only those of text can be read here
            if not all(isinstance(part, dict) and part.get("type") == "text" for part in content):
                raise Refused(f"messages[{number}].content: the native runtime reads text alone")
            content = "".join(str(part.get("text", "")) for part in content)
        if not isinstance(content, str):
            raise Refused(f"messages[{number}].content: must be a text")
        messages[number] = {**message, "content": content}
    extra = body.get("chat_template_kwargs") or {}
    if not isinstance(extra, dict):
        raise Refused("chat_template_kwargs: must be an object")
    return text.chat(messages, extra)


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value not in (None, True, False):
        raise Refused(f"{name}: must be true or false")
    return bool(value)


def _whole(body: Mapping[str, Any], name: str, default: int, least: int, most: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int or not least <= value <= most:
        raise Refused(f"{name}: {value!r} is no whole number from {least} to {most}")
    return value


def _number(body: Mapping[str, Any], name: str, default: float, least: float, most: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if type(value) not in (int, float) or not least <= value <= most:
        raise Refused(f"{name}: {value!r} is no number from {least:g} to {most:g}")
    return float(value)
