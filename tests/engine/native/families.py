"""Run by the engine's own Python: tiny models of common families, and how well slots and no cache agree on each.

python families.py SCRATCH > {family: distance of logits}. Windows of 8 tokens are far shorter than the selfcheck's text.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModelForCausalLM

from kintsugi_engine.native.loading import load
from kintsugi_engine.native.options import parse

COMMON = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
MIXED = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
FAMILIES: dict[str, dict[str, Any]] = {
    "mistral": {**COMMON, "sliding_window": 8},
    "qwen3": {**COMMON, "head_dim": 8},
    "qwen3_moe": {**COMMON, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "gemma3_text": {**COMMON, **MIXED, "head_dim": 8},
    "gpt_oss": {**COMMON, **MIXED, "head_dim": 8, "num_local_experts": 4},
    "mixtral": {**COMMON, "num_local_experts": 4},
    "gpt2": {"vocab_size": 300, "n_positions": 512, "n_embd": 32, "n_layer": 2, "n_head": 4},
}


def main() -> None:
    found = {}
    for family, sizes in FAMILIES.items():
        folder = Path(sys.argv[1]) / family
        AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **sizes)).save_pretrained(folder)
        said: list[str] = []
        load(parse(["--model", str(folder), "--max-num-seqs", "2"]), said.append)
        match = re.search(r"agree to (\S+)", said[-1])
        found[family] = float(match[1]) if match else None
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
