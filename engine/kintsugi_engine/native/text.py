"""Between text and tokens: the model's own tokenizer and chat template."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kintsugi_engine.native.options import Options
from kintsugi_engine.native.refused import Refused


class Text:
    """The tokenizer of one model."""

    def __init__(self, tokenizer: Any, template: str | None = None) -> None:
        self._tokenizer = tokenizer
        self._template = template or tokenizer.chat_template
        self._fast = tokenizer.backend_tokenizer

    def tokens(self, text: str) -> tuple[int, ...]:
        """Tokens of a prompt, with the model's own beginning."""
        return tuple(self._tokenizer(text)["input_ids"])

    def chat(self, messages: Sequence[Mapping[str, Any]], extra: Mapping[str, Any]) -> tuple[int, ...]:
        """Tokens of a conversation, ready for the answer. Raises Refused where the model has no chat template."""
        if not self._template:
            raise Refused(
                "this model's tokenizer has no chat template: use /v1/completions, or start with --chat-template"
            )
        text = self._tokenizer.apply_chat_template(
            list(messages), chat_template=self._template, tokenize=False, add_generation_prompt=True, **extra
        )
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def piece(self, token: int) -> str:
        """One token as text."""
        return str(self._tokenizer.decode([token]))

    def reader(self, stops: Sequence[str]) -> "Reader":
        """For the tokens of one answer."""
        return Reader(self._fast, stops)


class Reader:
    """Text of an answer, token by token. A text that may be the beginning of a stop is held back until it is none."""

    def __init__(self, fast: Any, stops: Sequence[str]) -> None:
        from tokenizers.decoders import DecodeStream

        self._fast, self._stops = fast, tuple(stops)
        self._stream = DecodeStream(skip_special_tokens=True)
        self._held = ""
        self.stopped = False
        """Whether a stop came; nothing that follows is text."""

    def take(self, token: int) -> str:
        """The text that this token makes certain; often none."""
        return self._certain(self._stream.step(self._fast, token) or "")

    def rest(self) -> str:
        """What was held back, at the end of an answer that no stop ended."""
        held, self._held = self._held, ""
        return held

    def _certain(self, text: str) -> str:
        if self.stopped:
            return ""
        text = self._held + text
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    return next(
        (size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0
    )


def load_text(options: Options) -> Text:
    """Raises Refused where the folder has no tokenizer of the fast kind."""
    from transformers import AutoTokenizer

    template = None
    if options.chat_template:
        try:
            template = Path(options.chat_template).read_text()
        except OSError as error:
            raise Refused(f"--chat-template {options.chat_template}: {error.strerror}") from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(options.model, revision=options.revision)
    except Exception as error:  # transformers raises what it likes
        why = " ".join(str(error).split())[:300]
        raise Refused(f"--model {options.model}: its tokenizer can't be loaded: {why}") from error
    if not getattr(tokenizer, "is_fast", False):
        raise Refused(
            f"--model {options.model}: its tokenizer has no tokenizer.json, which the native runtime needs"
        )
    return Text(tokenizer, template)
