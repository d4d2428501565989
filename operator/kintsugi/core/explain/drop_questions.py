"""The questions of A18: what to look at where throughput has fallen, what is true about it, and the cure."""

from typing import Final

from kintsugi.core.explain.scene import LEAST_SECONDS, Question

SERVING: Final = Question(
    "A18",
    "serving",
    "Do as many instances serve as are wanted?",
    "a fleet with fewer instances serves fewer requests, which no threshold of the article would show",
    "see kintsugi explain for what is wrong with those that do not serve, and what is done about it",
    "a status that an operator keeps up to date",
)
DEMAND: Final = Question(
    "A18",
    "demand",
    "Is it full, or do fewer requests come?",
    "QPS also falls where fewer requests come, or longer ones: then nothing is wrong with the engines",
    "more is asked than it can serve: add replicas, shed load, or see kintsugi advise; a restart makes it worse",
    f"pages of at least {LEAST_SECONDS:.0f} s",
)
STALLED: Final = Question(
    "A18",
    "stalled",
    "Does an engine hang?",
    "a hung engine may well show 100 % GPU use",
    "it is withdrawn and replaced by spec.healing.triggers.stall, unless a gate holds it back: see kintsugi explain",
    "pages of the engines, or a status",
)
STEPS: Final = Question(
    "A18",
    "steps",
    "Do engine steps take longer than what they hold explains?",
    "this is what tells a slow engine from another traffic; tokens per second do not",
    "one slow instance is replaced by spec.healing.triggers.throughput; where all are slow, look at driver, power and "
    "network, since no new pod cures that",
    "a status of instances that were watched for their warm-up and 30 minutes more",
)
HIT_RATE: Final = Question(
    "A18",
    "cache-hit-rate",
    "Are enough prompt tokens found in the prefix cache?",
    "the hit rate is a property of the traffic and of how it is routed; a restart empties the cache and makes it worse",
    "route requests with the same beginning to the same instance, keep prompts' beginnings stable, give the cache room",
    "pages with vllm:prefix_cache_queries_total and some traffic (prefix caching may be off)",
)
PREEMPTIONS: Final = Question(
    "A18",
    "preemptions",
    "Are requests pushed out of the KV cache?",
    "today's engines do not swap: they preempt, and compute the request again. It means too many sequences for the cache",
    "lower spec.engine.args.maxNumSeqs or add memory: kintsugi advise says how many sequences the cache really holds",
    f"pages of at least {LEAST_SECONDS:.0f} s with vllm:num_preemptions_total",
)
GPU_USE: Final = Question(
    "A18",
    "gpu-utilization",
    "Is GPU use within the band?",
    "it says that a kernel runs, not that work is done: a hang may show 100 %, a healthy decode less than 70 %",
    "below the band: look at batch sizes and at how many requests come; above it: see the step on hung engines",
    "DCGM_FI_DEV_GPU_UTIL of the node's exporter; vLLM's pages do not hold it",
)
ERRORS: Final = Question(
    "A18",
    "errors",
    "Do requests fail inside the engines?",
    "requests that fail do not count as served, so QPS falls while GPUs look idle",
    "failures in one instance are cured by spec.healing.triggers.errors; failures everywhere follow requests or model",
    "pages of the engines while requests come",
)
