"""Run by the engine's own Python: requests that come and go through the native engine, held against transformers.

python greedy.py FOLDER > JSON. 32 requests of 1 to 3000 tokens are submitted at random moments, others among them are
aborted half-way, and each request's greedy tokens are compared with those that transformers' pass without any cache
gives. Then the same decoding is timed with all rows together and one after the other.
"""

import json
import random
import sys
import time
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM

from kintsugi_engine.native.core import Engine
from kintsugi_engine.native.loading import load
from kintsugi_engine.native.messages import Sampling, Submit
from kintsugi_engine.native.options import parse

LENGTHS: Final = (1, 2, 3, 4, 5, 31, 32, 33, 127, 128, 129, 255, 256, 257, 511, 640, 1024, 2047, 2048, 3000)
REQUESTS: Final = 32
DOOMED: Final = 6
SLOTS: Final = 8
ROWS: Final = 16
TIMED_TOKENS: Final = 32
ALONE: Final = 4
"""Requests of those that are timed one after the other: enough to know their speed."""
MARGIN: Final = 1e-4
"""Logits closer than this are a tie of the model's, which rounding may decide either way."""


def main() -> None:
    torch.set_num_threads(1)
    folder = sys.argv[1]
    # Random weights make the end of a text as likely as any token; min_tokens keeps it out.
    words = ["--model", folder, "--device", "cpu", "--dtype", "float32", "--max-model-len", "3200"]
    loaded = load(parse([*words, "--max-num-seqs", str(SLOTS)]), lambda line: print(line, file=sys.stderr))
    engine = Engine(loaded.model, loaded.store, loaded.eos_ids, 300, time.monotonic)
    chance = random.Random(11)
    orders, doomed = _orders(chance)
    made, most = _drive(engine, chance, orders, doomed)
    freed = engine.gauges().held_slots == 0
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    equal, near, wrong = _compare(plain, orders, made, doomed)
    many = load(parse([*words, "--max-num-seqs", str(ROWS), "--no-selfcheck"]), lambda _: None)
    json.dump(
        {
            "requests": len(orders) - len(doomed),
            "equalTokens": equal,
            "tiedTokens": near,
            "wrong": wrong,
            "mostAtOnce": most,
            "freed": freed,
            "slotBytes": loaded.store.slot_bytes,
            "batched": _rate(many, together=True),
            "oneByOne": _rate(many, together=False),
        },
        sys.stdout,
    )


def _orders(chance: random.Random) -> tuple[list[Submit], set[int]]:
    drawn = [round(10 ** chance.uniform(0, 3.4)) for _ in range(REQUESTS + DOOMED - len(LENGTHS))]
    lengths = [*LENGTHS, *drawn]
    chance.shuffle(lengths)
    orders = []
    for number, length in enumerate(lengths):
        tokens = tuple(chance.randrange(6, 262) for _ in range(length))
        count = chance.randrange(1, 40)
        sampling = Sampling(count, temperature=0, min_tokens=count)
        orders.append(Submit(number, tokens, sampling))
    return orders, set(
        chance.sample([n for n, length in enumerate(lengths) if length not in LENGTHS], DOOMED)
    )


def _drive(
    engine: Engine, chance: random.Random, orders: list[Submit], doomed: set[int]
) -> tuple[dict[int, list[int]], int]:
    """Submit and abort at random moments, to the end of the last one: (tokens of each request, most at once)."""
    waiting, most = list(orders), 0
    made: dict[int, list[int]] = {order.id: [] for order in orders}
    while waiting or engine.busy:
        while waiting and (not engine.busy or chance.random() < 0.3):
            engine.submit(waiting.pop(0))
        step = engine.step()
        most = max(most, step.gauges.running)
        for piece in step.pieces:
            made[piece.id] += [chosen.token for chosen in piece.chosen]
        for id_ in doomed:
            if chance.random() < 0.02:
                engine.abort(id_)
    return made, most


def _compare(
    plain: Any, orders: list[Submit], made: dict[int, list[int]], doomed: set[int]
) -> tuple[int, int, list[str]]:
    """(tokens that are equal, that were a tie, differences in words). What a doomed request got counts, too."""
    equal, near, wrong = 0, 0, []
    for order in orders:
        tokens = made[order.id]
        if order.id not in doomed and len(tokens) != order.sampling.max_tokens:
            wrong.append(f"request {order.id}: {len(tokens)} tokens of {order.sampling.max_tokens}")
        if not tokens:
            continue
        text = torch.tensor([[*order.tokens, *tokens[:-1]]])
        with torch.no_grad():
            logits = plain(input_ids=text, use_cache=False, logits_to_keep=len(tokens)).logits[0]
        logits[:, 2] = float("-inf")  # the end of the text, which min_tokens kept out
        best = logits.max(-1)
        for place, token in enumerate(tokens):
            if int(best.indices[place]) == token:
                equal += 1
            elif float(best.values[place] - logits[place, token]) < MARGIN:
                near += 1
            else:
                wrong.append(f"request {order.id} ({len(order.tokens)} tokens), its token {place}")
                break
    return equal, near, wrong


def _rate(loaded: Any, *, together: bool) -> float:
    """Tokens a second of decoding `ROWS` requests."""
    total, spent = 0, 0.0
    sampling = Sampling(TIMED_TOKENS, temperature=0, min_tokens=TIMED_TOKENS)
    orders = [Submit(number, tuple(range(10, 74)), sampling) for number in range(ROWS)]
    for batch in [orders] if together else [[order] for order in orders[:ALONE]]:
        engine = Engine(loaded.model, loaded.store, loaded.eos_ids, 1 << 20, time.monotonic)
        for order in batch:
            engine.submit(order)
        engine.step()  # the prompts
        began = time.monotonic()
        while engine.busy:
            total += engine.step().new_tokens
        spent += time.monotonic() - began
    return total / spent


if __name__ == "__main__":
    main()
