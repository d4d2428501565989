"""Run by the engine's own Python: writes a tiny Llama with random weights and a tokenizer of its own.

python tiny_llama.py FOLDER [windowed]: with that word a Gemma, of whose layers some see a window only. One token for each ASCII character, so the length of a prompt is known exactly.
"""

import sys
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

SPECIAL: Final = ("<pad>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>")

CHAT: Final = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes as tokens: a byte-level vocabulary without a single merge."""
    words = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(models.BPE(vocab={word: index for index, word in enumerate(words)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        additional_special_tokens=list(SPECIAL[3:]),
        model_max_length=8192,
    )
    fast.chat_template = CHAT
    return fast


SIZES: Final = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,  # the smallest that vLLM's attention on the CPU takes
    "max_position_embeddings": 8192,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "dtype": torch.bfloat16,
}


def model() -> LlamaForCausalLM:
    """Two layers. Small random weights make the next token nearly uniform, so that an answer seldom ends early."""
    return flattened(LlamaForCausalLM(LlamaConfig(**SIZES, num_hidden_layers=2, tie_word_embeddings=False)))


def windowed() -> Gemma3ForCausalLM:
    """Two layers that see everything, two that see 64 tokens: two KV cache groups, each with blocks of its own."""
    kinds = ["sliding_attention", "full_attention"] * 2
    return flattened(
        Gemma3ForCausalLM(
            Gemma3TextConfig(**SIZES, num_hidden_layers=4, layer_types=kinds, sliding_window=64)
        )
    )


def flattened(made: Any) -> Any:
    """That model with the weights of the docstring above, the same at every call."""
    torch.manual_seed(0)
    made = made.to(torch.bfloat16)
    with torch.no_grad():
        for weights in made.parameters():
            if weights.dim() > 1:
                weights.normal_(0, 0.02)
    return made


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer().save_pretrained(folder)
    made = windowed() if sys.argv[2:] == ["windowed"] else model()
    made.save_pretrained(folder)


if __name__ == "__main__":
    main()
