"""From a folder to a model with slots, or to a refusal that names what can't be loaded."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from kintsugi_engine.native import deepseek_v4, key_values, memory
from kintsugi_engine.native.options import Options
from kintsugi_engine.native.refused import Refused
from kintsugi_engine.native.selfcheck import Reference, judge, reference
from kintsugi_engine.native.store import Store

DEEPSEEK_V4: Final = "deepseek_v4"
SELFCHECK_TOKENS: Final = 40
"""And twice the coarsest of DeepSeek-V4's rates, so that entries of every kind are made."""
_DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that is ready to serve."""

    model: Any
    store: Store
    eos_ids: frozenset[int]
    model_bytes: int


def load(options: Options, say: Callable[[str], None]) -> Loaded:
    """Load, take the memory of all slots, and compare with the uncached model. Raises Refused with the reason."""
    device = _device(options.device)
    config = _config(options)
    model, dtype = _model(options, config, device)
    max_tokens = _max_tokens(options, config)
    checked = _reference(options, model, max_tokens)
    store = _store(options, model, max_tokens, dtype, device, say)
    if checked is not None:
        say(
            f"selfcheck: logits with slots and without a cache agree to {judge(model, store, checked, dtype):.1e}"
        )
    size = sum(each.numel() * each.element_size() for each in (*model.parameters(), *model.buffers()))
    return Loaded(model, store, _eos_ids(model), size)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise Refused("--device cuda: PyTorch sees no GPU here. Give the container one, or say --device cpu")
    return device


def _config(options: Options) -> Any:
    folder = Path(options.model)
    if folder.is_absolute() and not (folder / "config.json").is_file():
        raise Refused(
            f"--model {options.model}: there is no config.json in this folder, so no model lies there"
        )
    try:
        config = AutoConfig.from_pretrained(options.model, revision=options.revision)
    except (ValueError, KeyError, OSError, json.JSONDecodeError) as error:
        raise Refused(f"--model {options.model}: its config.json can't be read: {_short(error)}") from error
    if getattr(config, "is_encoder_decoder", False):
        raise Refused(
            f"{config.model_type} is an encoder with a decoder; the native runtime serves decoders alone"
        )
    return config


def _model(options: Options, config: Any, device: torch.device) -> tuple[Any, torch.dtype]:
    dtype = _DTYPES.get(options.dtype)
    if dtype is None:
        # On a CPU lower precision is no faster, and some layers of DeepSeek-V4 refuse it (their weights stay float32).
        dtype = torch.float32 if device.type == "cpu" else (config.dtype or torch.bfloat16)
    if config.model_type != DEEPSEEK_V4 and type(config) not in AutoModelForCausalLM._model_mapping:
        raise Refused(
            f"{config.model_type} is no model that transformers can let write text: the native runtime can't load it"
        )
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            options.model,
            config=config,
            revision=options.revision,
            dtype=torch.float32 if device.type == "cpu" else dtype,
            output_loading_info=True,
        )
    except Exception as error:  # transformers and its quantisers raise what they like
        quantised = getattr(config, "quantization_config", None)
        hint = f" (it is quantised: {_short(quantised)})" if quantised else ""
        raise Refused(
            f"{config.model_type} from {options.model} can't be loaded{hint}: {_short(error)}"
        ) from error
    missing = sorted(report["missing_keys"]) + sorted(
        str(each) for each in report.get("mismatched_keys") or ()
    )
    if missing:
        raise Refused(
            f"{options.model} lacks {len(missing)} weights of {config.model_type}, such as {missing[0]}: the model would "
            "answer noise. The folder is incomplete, or its names are not those that transformers knows"
        )
    if not getattr(config, "quantization_config", None):
        model = model.to(dtype)
    return model.to(device).eval(), dtype


def _max_tokens(options: Options, config: Any) -> int:
    limit = int(getattr(config.get_text_config(decoder=True), "max_position_embeddings", 0) or 0)
    wanted = options.max_model_len or limit
    if not wanted:
        raise Refused(
            "--max-model-len: the model's config.json names no limit, so say how many tokens a slot shall hold"
        )
    if limit and wanted > limit:
        raise Refused(
            f"--max-model-len {wanted}: the model was made for {limit} tokens (max_position_embeddings)"
        )
    return wanted


def _reference(options: Options, model: Any, max_tokens: int) -> Reference | None:
    if not options.selfcheck:
        return None
    rates = getattr(model.config, "compress_rates", None) or {}
    return reference(model, min(max_tokens, SELFCHECK_TOKENS + 2 * max(rates.values(), default=0)))


def _store(
    options: Options,
    model: Any,
    max_tokens: int,
    dtype: torch.dtype,
    device: torch.device,
    say: Callable[[str], None],
) -> Store:
    slots = options.max_num_seqs
    own = model.config.model_type == DEEPSEEK_V4
    if own:
        deepseek_v4.check(model)
        size = deepseek_v4.slot_bytes(model, max_tokens)
    else:
        layers = key_values.layers_of(model)
        size = key_values.slot_bytes(layers, max_tokens, dtype)
    free = memory.free_bytes(device)
    _fits(slots, size, free, options.memory_share, max_tokens)
    say(
        f"KV cache: {slots} slots of {max_tokens} tokens, {size} bytes each, {slots * size / memory.GIB:.3f} GiB in all, "
        f"of {free / memory.GIB:.1f} GiB free on {device}"
    )
    if own:
        return deepseek_v4.V4Slots(model, slots, max_tokens)
    return key_values.KeyValueSlots(layers, slots, max_tokens, dtype, device)


def _fits(slots: int, size: int, free: int, share: float, max_tokens: int) -> None:
    room = int(free * share)
    if slots * size <= room:
        return
    most, tokens = room // size, max_tokens * room // (slots * size)
    raise Refused(
        f"{slots} slots of {max_tokens} tokens need {slots * size / memory.GIB:.2f} GiB ({size} bytes each), and "
        f"{share:.0%} of the {free / memory.GIB:.2f} GiB that are free are {room / memory.GIB:.2f} GiB. "
        f"Say --max-num-seqs {most} or less"
        * bool(most)
        + " or " * bool(most and tokens)
        + f"--max-model-len {tokens} or less" * bool(tokens)
    )


def _eos_ids(model: Any) -> frozenset[int]:
    found = getattr(model.generation_config, "eos_token_id", None)
    if found is None:
        found = getattr(model.config, "eos_token_id", None)
    return frozenset([found] if isinstance(found, int) else found or ())


def _short(error: object) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:400]
