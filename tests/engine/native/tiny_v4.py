"""Run by the engine's own Python: writes a tiny DeepSeek-V4 with random weights and the tiny Llama's tokenizer.

python tiny_v4.py FOLDER [INDEX_TOPK]. Four layers, one of each kind of attention and a second sparse one, the first
with experts chosen by hash. Sixteen index heads make it rare that two entries score exactly the same.
"""

import runpy
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

WINDOW, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"


def model(index_topk: int = 1024) -> Any:
    """About half a million parameters. `index_topk`: entries that a sparse layer attends to."""
    torch.manual_seed(0)
    config = DeepseekV4Config(
        vocab_size=320,
        hidden_size=64,
        num_hidden_layers=4,
        layer_types=[WINDOW, HEAVY, SPARSE, SPARSE],
        mlp_layer_types=["hash_moe", "moe", "moe", "moe"],
        compress_rates={SPARSE: 4, HEAVY: 128},
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=64,
        partial_rotary_factor=0.5,
        q_lora_rank=32,
        o_groups=2,
        o_lora_rank=32,
        sliding_window=32,
        index_n_heads=16,
        index_head_dim=32,
        index_topk=index_topk,
        moe_intermediate_size=64,
        n_routed_experts=4,
        n_shared_experts=1,
        num_experts_per_tok=2,
        hc_mult=4,
        hc_sinkhorn_iters=20,
        max_position_embeddings=8192,
        num_nextn_predict_layers=0,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    made = DeepseekV4ForCausalLM(config).float()
    chance = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weights in made.named_parameters():
            if weights.dim() > 1:
                weights.normal_(0, 0.05, generator=chance)
            elif name.endswith("sinks"):
                weights.normal_(0, 0.5, generator=chance)
        for name, table in made.named_buffers():
            if name.endswith("tid2eid"):  # zeros as it is made: the same expert twice for every token
                drawn = [torch.randperm(4, generator=chance)[:2] for _ in range(config.vocab_size)]
                table.copy_(torch.stack(drawn))
            elif name.endswith("e_score_correction_bias"):
                table.normal_(0, 0.01, generator=chance)
    return made


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    # This file is run alone, without the tests' package.
    llama = runpy.run_path(str(Path(__file__).resolve().parent.parent / "tiny_llama.py"))
    llama["tokenizer"]().save_pretrained(folder)
    model(*(int(word) for word in sys.argv[2:3])).save_pretrained(folder)


if __name__ == "__main__":
    main()
