"""Run by the engine's own Python: what the native runtime says of what it can't serve.

python refusals.py LLAMA SCRATCH > {case: text}. One process for all, since each start costs seconds of imports.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, MambaConfig, MambaForCausalLM, T5Config

from kintsugi_engine.native import loading
from kintsugi_engine.native.options import parse
from kintsugi_engine.native.refused import Refused
from kintsugi_engine.native.selfcheck import judge, reference


def said(folder: Path, *words: str) -> str:
    """The refusal, '' where it loads."""
    try:
        loading.load(parse(["--model", str(folder), *words]), lambda _: None)
    except Refused as error:
        return str(error)
    return ""


def mamba(folder: Path) -> Path:
    MambaForCausalLM(
        MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, state_size=4)
    ).save_pretrained(folder)
    return folder


def encoder(folder: Path) -> Path:
    T5Config(vocab_size=64, d_model=32, num_layers=1).save_pretrained(folder)
    return folder


def incomplete(folder: Path) -> Path:
    """A Llama of two layers under a configuration that names three."""
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(told | {"num_hidden_layers": 3}))
    return folder


def unreadable(llama: Path, folder: Path) -> Path:
    shutil.copytree(llama, folder)
    (folder / "config.json").write_text("{")
    return folder


def forgetful(llama: Path) -> str:
    """What the selfcheck says of slots that forget: a model that keeps something else would look like this."""
    loaded = loading.load(parse(["--model", str(llama), "--max-num-seqs", "2"]), lambda _: None)
    expected = reference(loaded.model, 40)

    class Forgets:
        slots, max_tokens = loaded.store.slots, loaded.store.max_tokens

        def run(self, model: Any, tokens: torch.Tensor, rows: Any) -> torch.Tensor:
            loaded.store.clear(rows.one)
            return loaded.store.run(model, tokens, rows)

    try:
        judge(loaded.model, Forgets(), expected, torch.float32)  # type: ignore[arg-type]
    except Refused as error:
        return str(error)
    return ""


def main() -> None:
    llama, scratch = Path(sys.argv[1]), Path(sys.argv[2])
    found = {
        "whole": said(llama, "--max-num-seqs", "2"),
        "slots": said(llama, "--max-num-seqs", "100000000"),
        "length": said(llama, "--max-model-len", "9000"),
        "empty": said(scratch),
        "unreadable": said(unreadable(llama, scratch / "unreadable")),
        "mamba": said(mamba(scratch / "mamba"), "--max-model-len", "64"),
        "encoder": said(encoder(scratch / "encoder")),
        "incomplete": said(incomplete(scratch / "incomplete")),
        "device": "" if torch.cuda.is_available() else said(llama, "--device", "cuda"),
        "forgetful": forgetful(llama),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
