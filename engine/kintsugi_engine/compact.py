"""`kintsugi-engine compact`: have the engine of this pod give its GPUs' cached memory back."""

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence

from kintsugi_engine.contract import COMPACT_PATH, ENGINE_PORT


def main(words: Sequence[str]) -> int:
    """Prints the answer; exit code 0 where the engine did it, 1 where it could not."""
    parser = argparse.ArgumentParser(prog="kintsugi-engine compact", allow_abbrev=False)
    parser.add_argument("--url", default=f"http://127.0.0.1:{ENGINE_PORT}")
    parser.add_argument("--timeout", type=float, default=30.0)
    options = parser.parse_args(words)
    headers = {"Authorization": f"Bearer {key}"} if (key := os.environ.get("VLLM_API_KEY")) else {}
    request = urllib.request.Request(options.url + COMPACT_PATH, b"", headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=options.timeout) as answer:
            ranks = json.load(answer)["ranks"]
    except urllib.error.HTTPError as error:
        with error:
            why = "this engine has no such path" if error.code == 404 else f"status {error.code}"
        print(f"kintsugi-engine compact: {why}", file=sys.stderr)
        return 1
    except (OSError, ValueError, KeyError) as error:
        print(f"kintsugi-engine compact: {error}", file=sys.stderr)
        return 1
    for rank in ranks:
        freed = rank["reservedBefore"] - rank["reservedAfter"]
        print(f"rank {rank['rank']}: {rank['reservedBefore']} bytes reserved, {freed} given back")
    if not ranks:
        print("no GPU, so nothing to give back")
    return 0
