"""How metric faults change a finished page: other names, missing families, NaN."""

import re
from typing import Final

from kintsugi.testing.engine.faults import ForeignPrefix, NanMetrics, OldNames, VanishedSeries
from kintsugi.testing.engine.faultset import FaultSet

_RENAMED: Final = (
    ('engine="0",', ""),
    ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    ("vllm:request_time_per_output_token_seconds", "vllm:mean_time_per_output_token_seconds"),
    ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    ("vllm:prefix_cache_queries_", "vllm:gpu_prefix_cache_queries_"),
    ("vllm:prefix_cache_hits_", "vllm:gpu_prefix_cache_hits_"),
)
_UNKNOWN_TO_OLD: Final = (
    *("vllm:num_requests_waiting_by_reason", "vllm:engine_sleep_state", "vllm:estimated_"),
    *("vllm:external_prefix_", "vllm:mm_cache_", "vllm:prompt_tokens_by_source", "vllm:prompt_tokens_cached"),
    *("vllm:admission_rejections", "vllm:request_prefill_kv_", "vllm:request_num_preemptions"),
    "vllm:mean_time_per_output_token_seconds",
)
_FAMILY: Final = re.compile(r"^(?:# (?:HELP|TYPE) )?([^ {]+)")
_SAMPLE: Final = re.compile(r"^([^#\n ]\S*) \S+$", re.MULTILINE)


def disguise(page: str, faults: FaultSet, now: float) -> str:
    """The page as the metric faults that hold now let it look; the very same text without one."""
    if faults.get(OldNames, now):
        page = _as_old(page)
    if vanished := faults.get(VanishedSeries, now):
        page = _without(page, vanished.series)
    if nan := faults.get(NanMetrics, now):
        page = _as_nan(page, nan.series)
    if foreign := faults.get(ForeignPrefix, now):
        page = page.replace("vllm:", foreign.prefix)
    return page


def _as_old(page: str) -> str:
    for new, old in _RENAMED:
        page = page.replace(new, old)
    page = _without(page, _UNKNOWN_TO_OLD)
    model = re.search(r"^vllm:num_requests_running(\{.*?\})", page, re.MULTILINE)
    if model is None:
        return page
    extra = "".join(
        f"# HELP {name} {text}\n# TYPE {name} gauge\n{name}{model[1]} 0.0\n"
        for name, text in (
            ("vllm:num_requests_swapped", "Requests swapped to the host."),
            ("vllm:cpu_cache_usage_perc", "Share of host KV blocks in use."),
        )
    )
    return page + extra


def _without(page: str, series: tuple[str, ...]) -> str:
    def stays(line: str) -> bool:
        found = _FAMILY.match(line)
        return found is None or not found[1].startswith(series)

    return "".join(line for line in page.splitlines(keepends=True) if stays(line))


def _as_nan(page: str, series: tuple[str, ...]) -> str:
    if not series:
        series = tuple(
            line.split(" ")[2]
            for line in page.splitlines()
            if line.startswith("# TYPE vllm:") and line.endswith(" gauge") and "_created" not in line
        )

    def replace(found: re.Match[str]) -> str:
        return f"{found[1]} NaN" if found[1].startswith(series) else found[0]

    return _SAMPLE.sub(replace, page)
