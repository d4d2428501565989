"""How vLLM's command line spells its flags: aliases, switches and flags with several values.

Source: `vllm/engine/arg_utils.py`, `vllm/entrypoints/openai/cli_args.py` and `vllm/utils/argparse_utils.py` of
vLLM's main branch, 2026.
"""

from collections.abc import Collection
from typing import Final

ALIASES: Final = {
    "-ac": "--attention-config",
    "-asc": "--api-server-count",
    "-cc": "--compilation-config",
    "-dcp": "--decode-context-parallel-size",
    "-dp": "--data-parallel-size",
    "-dpa": "--data-parallel-address",
    "-dpb": "--data-parallel-backend",
    "-dpe": "--data-parallel-external-lb",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpl": "--data-parallel-size-local",
    "-dpm": "--data-parallel-multi-port-external-lb",
    "-dpn": "--data-parallel-rank",
    "-dpp": "--data-parallel-rpc-port",
    "-dpr": "--data-parallel-start-rank",
    "-ep": "--enable-expert-parallel",
    "-n": "--nnodes",
    "-O": "--optimization-level",
    "-pcp": "--prefill-context-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-q": "--quantization",
    "-r": "--node-rank",
    "-sc": "--speculative-config",
    "-tp": "--tensor-parallel-size",
}
"""Every short form."""

RENAMED: Final = {"--device-memory-utilization": "--gpu-memory-utilization"}
"""Newer names (from 0.31) of flags whose old name is still taken."""

SHORTHANDS: Final = {
    "--speculative-config": frozenset({"--spec-method", "--spec-model", "--spec-tokens"}),
}
"""Flags that set part of a JSON flag, beside the dotted form."""

LISTS: Final = frozenset(
    {
        "--allowed-media-domains",
        "--api-key",
        "--collect-detailed-traces",
        "--cpu-offload-params",
        "--cudagraph-capture-sizes",
        "--ignore-patterns",
        "--kv-cache-dtype-skip-layers",
        "--logits-processors",
        "--lora-modules",
        "--offload-params",
        "--served-model-name",
    }
)
"""Flags that take every word up to the next flag."""

_SWITCH_PREFIXES: Final = ("--enable-", "--disable-", "--skip-", "--interleave-", "--use-")
_VALUED: Final = frozenset({"--disable-access-log-for-endpoints"})
_SWITCHES: Final = frozenset(
    {
        "--aggregate-engine-logging",
        "--allow-credentials",
        "--allow-deprecated-quantization",
        "--async-scheduling",
        "--calculate-kv-scales",
        "--cudagraph-metrics",
        "--data-parallel-external-lb",
        "--data-parallel-hybrid-lb",
        "--data-parallel-multi-port-external-lb",
        "--enforce-eager",
        "--exclude-tools-when-tool-choice-none",
        "--fail-on-environ-validation",
        "--fully-sharded-loras",
        "--grpc",
        "--headless",
        "--kv-cache-metrics",
        "--kv-sharing-fast-prefill",
        "--language-model-only",
        "--log-error-stack",
        "--mm-encoder-only",
        "--numa-bind",
        "--ray-workers-use-nsight",
        "--return-tokens-as-token-ids",
        "--specialize-active-lora",
        "--tokens-only",
        "--trust-remote-code",
        "--trust-request-chat-template",
    }
)


def is_switch(flag: str) -> bool:
    """Whether the flag, in its canonical spelling, takes no value."""
    return flag in _SWITCHES or (flag.startswith(_SWITCH_PREFIXES) and flag not in _VALUED)


def canonical(flag: str, known: Collection[str] = ()) -> str:
    """`flag` as the engine names it: `-tp` → `--tensor-parallel-size`, `--max_model_len=8k` → `--max-model-len`,
    `--no-enable-lora` → `--enable-lora`.

    Keys after the first dot keep their underscores, as in the engine: `--attention_config.use_fp4_indexer_cache` →
    `--attention-config.use_fp4_indexer_cache`. With `known` flags, a unique beginning counts as the whole flag, as
    argparse allows. Any text is taken; what is no flag comes back as it is.
    """
    name, equals, _ = flag.partition("=")
    if not name.startswith("-") or name in ("-", "--"):
        return flag
    root, dot, rest = name.partition(".")
    if root.startswith("--"):
        root = "--" + root[2:].replace("_", "-")
        if root.startswith("--no-") and not equals:
            root = "--" + root.removeprefix("--no-")
        if known and root not in known:
            longer = [each for each in known if each.startswith(root)]
            root = longer[0] if len(longer) == 1 else root
    elif root == "-O" and dot:
        root = "--compilation-config"
    elif root in ALIASES:
        root = ALIASES[root]
    elif root[:2] in ALIASES and not dot and not root[2:].isalpha():
        root = ALIASES[root[:2]]  # -n2, -O3
    return RENAMED.get(root, root) + dot + rest.removesuffix("+")


def root_of(flag: str) -> str:
    """`--attention-config` of `--attention-config.use_fp4_indexer_cache`; the flag itself where it has no dot."""
    return flag.partition(".")[0]
