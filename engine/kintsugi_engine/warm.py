"""`kintsugi-engine warm`: one request of each length before the pod is Ready, so that no user waits for kernels.

For a start-up probe: the first call that finds the engine healthy warms it and leaves a mark; exit code 0 from then on,
1 while the engine is not there yet. A request that is refused (4xx) is said and left: its length is not served here.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kintsugi_engine.contract import ENGINE_PORT
from kintsugi_engine.page import fetch

LENGTHS: Final = (1, 128, 1024, 4096)
"""Tokens of the prompts: one token, and what crosses the block sizes and prefill chunks in common use."""
TOKENS: Final = 4
"""Of each answer: the first comes from the prompt's pass, the others from decoding."""
TOKEN_ID: Final = 11
"""Every vocabulary has it."""


def main(words: Sequence[str]) -> int:
    """Exit code 0 once warm, 1 before."""
    parser = argparse.ArgumentParser(prog="kintsugi-engine warm", allow_abbrev=False)
    parser.add_argument("--url", default=f"http://127.0.0.1:{ENGINE_PORT}")
    parser.add_argument(
        "--lengths", type=_lengths, default=LENGTHS, help="prompt lengths in tokens, as 1,128,4096"
    )
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds that one request may take")
    parser.add_argument("--mark", type=Path, help="file that says that this container's engine is warm")
    options = parser.parse_args(words)
    mark = options.mark or Path(tempfile.gettempdir()) / f"kintsugi-warm-{os.getuid()}"
    if mark.exists():
        return 0
    try:
        fetch(f"{options.url}/health", 5.0)
        for length in options.lengths:
            print(f"kintsugi-engine warm: {ask(options.url, length, options.timeout)}", flush=True)
    except OSError as error:
        print(f"kintsugi-engine warm: not yet: {error}", file=sys.stderr)
        return 1
    mark.touch()
    return 0


def ask(url: str, length: int, timeout: float) -> str:
    """Send one request; what became of it. Raises OSError where the engine is not there, or fails."""
    body = {"prompt": [TOKEN_ID] * length, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    headers = {"Content-Type": "application/json", "X-Request-Id": f"kintsugi-warm-{length}"}
    if key := os.environ.get("VLLM_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), headers, method="POST"
    )
    began = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        with error:
            if error.code >= 500:
                raise
            return f"{length} tokens: refused ({error.code}), left out"
    return f"{length} tokens: {time.monotonic() - began:.2f} s"


def _lengths(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of lengths, such as 1,128,4096")
    return found
