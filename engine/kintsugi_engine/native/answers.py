"""Answers in OpenAI's shapes: whole ones, and the frames of a stream."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kintsugi_engine.native.messages import Chosen, Piece
from kintsugi_engine.native.text import Reader, Text

Json = dict[str, Any]


@dataclass(slots=True)
class Choice:
    """One answer as it grows."""

    index: int
    reader: Reader
    text: str = ""
    finish: str = ""
    made: int = 0
    told: list[Chosen] = field(default_factory=list)
    """Tokens with log-probabilities, where these were asked for."""

    def take(self, piece: Piece) -> str:
        """The new text of a piece. A stop ends the answer before the engine does."""
        new = ""
        for chosen in piece.chosen:
            self.made += 1
            if chosen.logprob is not None:
                self.told.append(chosen)
            new += self.reader.take(chosen.token)
        if self.reader.stopped:
            self.finish = "stop"
        elif piece.finish:
            self.finish = piece.finish
            new += self.reader.rest()
        self.text += new
        return new


@dataclass(frozen=True, slots=True)
class Shape:
    """Whose answer it is: the same id, model and moment in every frame."""

    id: str
    model: str
    chat: bool
    created: int

    def whole(self, choices: Sequence[Choice], prompt_tokens: int, text: Text) -> Json:
        """An answer in one piece."""
        kind = "chat.completion" if self.chat else "text_completion"
        listed = [self._choice(each, text) for each in choices]
        return self._frame(kind, listed) | {"usage": usage(choices, prompt_tokens)}

    def opening(self, choice: Choice) -> Json:
        """The first frame of a chat's stream."""
        delta = {"role": "assistant", "content": ""}
        return self._chunk([{"index": choice.index, "delta": delta, "finish_reason": None}])

    def chunk(self, choice: Choice, new: str, told: Sequence[Chosen], text: Text) -> Json:
        """One frame of a stream."""
        part: Json = {"index": choice.index, "finish_reason": choice.finish or None}
        part |= {"delta": {"content": new}} if self.chat else {"text": new}
        part["logprobs"] = self._told(told, text)
        return self._chunk([part])

    def closing(self, choices: Sequence[Choice], prompt_tokens: int) -> Json:
        """The frame with the usage."""
        return self._chunk([]) | {"usage": usage(choices, prompt_tokens)}

    def _chunk(self, choices: list[Json]) -> Json:
        return self._frame("chat.completion.chunk" if self.chat else "text_completion", choices)

    def _frame(self, kind: str, choices: list[Json]) -> Json:
        return {
            "id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices,
        }  # fmt: skip

    def _choice(self, choice: Choice, text: Text) -> Json:
        part: Json = {"index": choice.index, "finish_reason": choice.finish}
        if self.chat:
            part["message"] = {"role": "assistant", "content": choice.text}
        else:
            part["text"] = choice.text
        part["logprobs"] = self._told(choice.told, text)
        return part

    def _told(self, told: Sequence[Chosen], text: Text) -> Json | None:
        if not told:
            return None
        if self.chat:
            return {"content": [_entry(each.token, each.logprob, text) | {
                "top_logprobs": [_entry(token, value, text) for token, value in each.top]
            } for each in told]}  # fmt: skip
        return {
            "tokens": [text.piece(each.token) for each in told],
            "token_logprobs": [each.logprob for each in told],
            "top_logprobs": [
                {text.piece(token): value for token, value in reversed(each.top)} for each in told
            ],
        }


def _entry(token: int, logprob: float | None, text: Text) -> Json:
    piece = text.piece(token)
    return {"token": piece, "logprob": logprob, "bytes": list(piece.encode())}


def usage(choices: Sequence[Choice], prompt_tokens: int) -> Json:
    """Tokens of a request."""
    made = sum(each.made for each in choices)
    return {"prompt_tokens": prompt_tokens, "completion_tokens": made, "total_tokens": prompt_tokens + made}


def event(frame: Json) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(frame, separators=(",", ":")).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def problem(status: int, why: str) -> Json:
    """An error in OpenAI's shape."""
    kinds = {
        400: "BadRequestError",
        401: "Unauthorized",
        404: "NotFoundError",
        503: "ServiceUnavailableError",
    }
    return {
        "error": {
            "message": why,
            "type": kinds.get(status, "InternalServerError"),
            "param": None,
            "code": status,
        }
    }


def shape(id_: str, model: str, *, chat: bool) -> Shape:
    """For an answer that begins now."""
    return Shape(id_, model, chat, int(time.clock_gettime(time.CLOCK_REALTIME)))
