"""The native runtime: PyTorch and transformers behind an OpenAI-compatible server, with a contiguous KV cache of slots.

One process answers HTTP (`server`), a second one computes (`process`); they talk through a pipe (`messages`). Within the
second, `core` decides what each step computes, and a store of slots (`key_values`, `deepseek_v4`) holds what the model
remembers of each request.
"""
