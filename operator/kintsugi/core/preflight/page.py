"""The page docs/rules.md, written from the rules by `make generate`."""

import json
from typing import Final

from kintsugi.core.preflight.registry import FIXED, RULES, STRUCTURAL
from kintsugi.core.preflight.rule import Rule

ARTICLE: Final[dict[str, tuple[str, str]]] = {
    "A1": (
        "V4 runs on vLLM by default",
        "from 0.20 (0731 and 0813: 0.25, V4.1: 0.30), on sm_90, sm_100, for Flash sm_120",
    ),
    "A2": (
        "long texts belong on a native PyTorch instance",
        "paged KV is always on in vLLM, with and without enforceEager; `engine.runtime: Native` is there per pool",
    ),
    "A3": (
        "block size is a multiple of the layer count",
        "it is tokens per KV block; V4's kernels take 256 and nothing else",
    ),
    "A4": (
        "at most 32 sequences on an A100-80G",
        "V4 does not run there; the limit is KV blocks, ceil(L / 256) + 26 per request. The queue limit is the fuse",
    ),
    "A5": ("gpuMemoryUtilization 0.9 instead of a static size", "0.92 is the default, recipes go up to 0.95"),
    "A6": (
        "compare vLLM with native PyTorch",
        "no setting: send both the same load and compare; a command for it is not built",
    ),
    "A7": (
        "lock vLLM at 0.3.2 or later for RoPE scaling",
        "0.3.2 predates V4 by two years; the scaling is in the checkpoint",
    ),
    "A8": (
        "--disable-log-stats makes cold starts faster",
        "it removes every vllm: series and no second; a cache, a start budget and warm-up help",
    ),
    "A9": (
        "take the hit rate from vllm:block_manager_metrics",
        "no such series ever was: it is vllm:prefix_cache_hits over vllm:prefix_cache_queries",
    ),
    "A10": (
        "rebuild an instance above 25 % fragmentation",
        "vLLM exports no such series; the engine's telemetry measures it, and healing acts within a budget",
    ),
    "A11": (
        "drafting needs a patched sampling.py",
        "it is configured: MTP or DSpark, by checkpoint and version",
    ),
    "A12": (
        "FP16 with AWQ misaligns pages",
        "weight-only formats can't touch KV pages, and V4 has no AWQ and no FP16 path",
    ),
    "A13": (
        "--swap-space 16G saves from out-of-memory",
        "removed in March 2026; `engine.kvOffload` is rendered by version",
    ),
    "A14": (
        "a dynamic block size saves 23 % at 32K",
        "not on V4; `kintsugi plan` compares sizes for families that allow several",
    ),
    "A15": ("two tiers by context length", "pools with ranges, a router, healing by pool"),
    "A16": (
        "profiles 64/64 and 256/16 with 32G of swap",
        "the block sizes are illegal on V4; sequences and offload are the profiles'",
    ),
    "A17": (
        "watch nvidia-smi for leaks, blame quantisation plugins",
        "GPU memory is flat in health; orphaned blocks and host memory tell",
    ),
    "A18": (
        "a QPS drop: hit rate, swaps, utilisation",
        "findings that never act; a probe that kills by late answers makes it worse",
    ),
    "A19": (
        "wrong output: check RoPE scaling and block borders",
        "overriding the scaling or the context is what makes it wrong",
    ),
    "A20": (
        "fragmentation, hit rate and swap frequency must be seen",
        "settings that take the series away are found",
    ),
    "A21": (
        "capacity = weights + sequences x length x bytes",
        "misses fixed blocks, replication under TP and the prefill spike",
    ),
    "A22": (
        "every minor version improves paging: keep updating",
        "versions also drop and add flags; each is checked",
    ),
    "A23": (
        "paged and native instances in one deployment",
        "allowed: each pool has its own runtime and range",
    ),
    "A24": ("block size 96 doubles the throughput", "96 does not start on V4"),
}
"""Each claim of the article that the product starts from, and what is true of it."""

_INTRODUCTION: Final = """\
# Rules

Written by `make generate` from `operator/kintsugi/core/preflight`. The same rules are asked by `kintsugi lint`, by the
admission webhook and by the operator before it makes a pod.

- **Error**: no pod is made, and nothing is changed on those that run; `SpecAccepted` is `False` with reason
  `ConfigInvalid`. **Warning**: it runs, and somebody should know.
- A finding names the field that says the offending argument, wherever that is: typed, among `extraArgs`, in a pool.
- `spec.validation.allow: [Name]` makes the rule's errors warnings, and takes its warnings for acknowledged. The rules
  marked *fixed* can't be allowed.
- `kintsugi lint FILE…` exits 0 when clean or with warnings only, 1 with errors, 2 when a file is unreadable or holds no
  deployment. `-o json` and `-o sarif` are for programs; `-` reads standard input.
- `kintsugi lint` also finds what only files show: a key that stands twice (`DuplicateKey`), and two deployments of one
  namespace and name (`DuplicateObject`: an error in one file, a warning in two, which may be meant for two clusters).
"""


def page() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, _shape(), _table(), *map(_section, RULES), _claims()]
    return "\n".join(parts)


def _shape() -> str:
    rows = [f"| `{name}` | {summary} |" for name, summary in STRUCTURAL.items()]
    head = "## Shape\n\nAsked first, of the object as it was written.\n\n| name | meaning |\n|---|---|\n"
    return head + "\n".join(rows) + "\n"


def _table() -> str:
    rows = [f"| [`{r.name}`](#{r.name.lower()}) | {r.severity} | {r.summary} |" for r in RULES]
    return "## Meaning\n\n| rule | severity | found |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _section(rule: Rule) -> str:
    fixed = ", fixed" if rule.name in FIXED else ""
    claims = f" Claims: {', '.join(rule.claims)}." if rule.claims else ""
    sources = " ".join(f"[{number}]({source})" for number, source in enumerate(rule.sources, 1))
    bad = json.dumps(rule.bad[0].spec, ensure_ascii=False)
    return f"### {rule.name}\n\n*{rule.severity}{fixed}.* {rule.why}{claims} Sources: {sources}\n\nFound in: `{bad}`\n"


def _claims() -> str:
    rows = []
    for claim, (said, truth) in ARTICLE.items():
        names = [f"`{rule.name}`" for rule in RULES if claim in rule.claims]
        rows.append(f"| {claim} | {said} | {truth} | {', '.join(names) or 'no manifest can express it'} |")
    head = "## The article, claim by claim\n\n| | said | true | rules |\n|---|---|---|---|\n"
    return head + "\n".join(rows) + "\n"
