"""A small stage for the judge: pages, instances and snapshots made from a few numbers, in virtual time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kintsugi.api.objects import DeepSeekV4Deployment, parse_deployment
from kintsugi.core.evidence import Memory
from kintsugi.core.finding import InstanceVerdict
from kintsugi.core.judge import Judgement, judge
from kintsugi.core.snapshot import (
    Canary,
    CanaryOutcome,
    CanaryResult,
    Failed,
    Failure,
    Fleet,
    Instance,
    Key,
    Page,
    Scrape,
    Snapshot,
)
from kintsugi.core.times import Times, effective_times

EPOCH = 1_790_000_000.0
"""Wall clock at monotonic zero."""


def deployment(healing: Mapping[str, Any] | None = None, **spec: Any) -> DeepSeekV4Deployment:
    """A deployment of one model; `healing` and other spec fields as a user writes them."""
    body: dict[str, Any] = {"model": {"id": "deepseek-ai/DeepSeek-V4-Flash"}, **spec}
    if healing is not None:
        body["healing"] = dict(healing)
    return parse_deployment(
        {
            "apiVersion": "kintsugi.dev/v1alpha1",
            "kind": "DeepSeekV4Deployment",
            "metadata": {"name": "chat", "namespace": "llm", "uid": "d-1", "generation": 1},
            "spec": body,
        }
    )


@dataclass
class Rank:
    """The figures of one engine rank."""

    running: float = 0
    waiting: float = 0
    deferred: float = 0
    """Of those waiting, for something of their own."""
    kv: float = 0.0
    steps: float = 1000
    generation: float = 1000
    prompt: float = 1000
    hits: float = 0
    queries: float = 0
    preemptions: float = 0
    first_tokens: float = 10
    itl_sum: float = 10.0
    itl_count: float = 1000
    long_gaps: float = 0
    """Inter-token gaps between 5 and 7.5 s."""
    awake: float = 1
    mixed_prefill: float | None = None
    """Counted step by step by our telemetry; None = there is none."""


@dataclass
class Engine:
    """The page of one instance."""

    ranks: list[Rank] = field(default_factory=lambda: [Rank()])
    start: float = EPOCH - 10_000
    cpu: float | None = 10.0
    """None = a page that holds nothing which moves by itself."""
    gpu_fragmentation: dict[str, float] = field(default_factory=dict)
    orphaned: float | None = None
    block_waste: float | None = None
    max_concurrency: float | None = 8.0
    """Requests of the longest length that fit at a time."""
    sample_age: float | None = None
    count_age: float = 0.5
    """Of what is counted step by step."""

    def page(self) -> str:
        """The `/metrics` page."""
        lines = [f"process_start_time_seconds {self.start}"]
        if self.cpu is not None:
            self.cpu += 0.01
            lines.append(f"process_cpu_seconds_total {self.cpu:.2f}")
        if self.max_concurrency is not None:
            config = f'engine="0",kv_cache_max_concurrency="{self.max_concurrency}"'
            lines.append(f"vllm:cache_config_info{{{config}}} 1")
        for index, rank in enumerate(self.ranks):
            lines += rank_lines(rank, str(index))
            if rank.mixed_prefill is not None:
                label = f'engine="{index}",model_name="dsv4"'
                lines += [
                    f'kintsugi_prefill_tokens{{{label},step="mixed"}} {rank.mixed_prefill}',
                    f'kintsugi_prefill_tokens{{{label},step="alone"}} 0',
                    f'kintsugi_sample_age_seconds{{{label},rank="steps"}} {self.count_age}',
                ]
        lines += [
            f'kintsugi_gpu_memory_fragmentation_ratio{{rank="{worker}"}} {ratio}'
            for worker, ratio in self.gpu_fragmentation.items()
        ]
        for name, value in (
            ("kintsugi_kv_orphaned_blocks_ratio", self.orphaned),
            ("kintsugi_kv_block_waste_ratio", self.block_waste),
            ("kintsugi_sample_age_seconds", self.sample_age),
        ):
            lines += [] if value is None else [f"{name} {value}"]
        return "\n".join(lines) + "\n"


def rank_lines(rank: Rank, engine: str) -> list[str]:
    """The series of one rank, named as vLLM 0.32 names them."""
    label = f'engine="{engine}",model_name="dsv4"'
    plain = {
        "vllm:num_requests_running": rank.running,
        "vllm:num_requests_waiting": rank.waiting,
        "vllm:kv_cache_usage_perc": rank.kv,
        "vllm:iteration_tokens_total_count": rank.steps,
        "vllm:generation_tokens_total": rank.generation,
        "vllm:prompt_tokens_total": rank.prompt,
        "vllm:prefix_cache_hits_total": rank.hits,
        "vllm:prefix_cache_queries_total": rank.queries,
        "vllm:num_preemptions_total": rank.preemptions,
        "vllm:time_to_first_token_seconds_count": rank.first_tokens,
        "vllm:inter_token_latency_seconds_sum": rank.itl_sum,
        "vllm:inter_token_latency_seconds_count": rank.itl_count,
    }
    short = rank.itl_count - rank.long_gaps
    edges = {"2.5": short, "5.0": short, "7.5": rank.itl_count, "+Inf": rank.itl_count}
    return [
        f'vllm:num_requests_waiting_by_reason{{{label},reason="deferred"}} {rank.deferred}',
        *(f"{name}{{{label}}} {value}" for name, value in plain.items()),
        *(f'vllm:inter_token_latency_seconds_bucket{{{label},le="{le}"}} {n}' for le, n in edges.items()),
        f'vllm:engine_sleep_state{{{label},sleep_state="awake"}} {rank.awake}',
    ]


def instance(uid: str = "pod-a", scrape: Scrape | None = None, **changes: Any) -> Instance:
    """A Ready instance that has been serving for hours."""
    values: dict[str, Any] = {
        "name": uid,
        "uid": uid,
        "pool": "main",
        "revision": "r1",
        "node": "n1",
        "created_at": EPOCH - 10_000,
        "phase": "Running",
        "phase_reason": "",
        "started_at": EPOCH - 10_000,
        "ready": True,
        "ready_since": EPOCH - 9_000,
        "in_rotation": True,
        "member": True,
        "deleting": False,
        "restarts": 0,
        "waiting_reason": "",
        "waiting_message": "",
        "last_termination": None,
        "pod_ip": "10.0.0.1",
        "annotations": {},
        "scrape": scrape if scrape is not None else Failed(Failure.NO_ADDRESS, "none", 0.0),
        "max_num_seqs": 16,
        "longest_prompt": 131_072,
    }
    return Instance(**{**values, **changes})


def snapshot(
    instances: Sequence[Instance],
    mono: float,
    deployed: DeepSeekV4Deployment,
    late_by: float = 0.0,
    clock_jump: float = 0.0,
) -> Snapshot:
    """One pass at monotonic time `mono`."""
    return Snapshot(
        key=Key("llm", "chat"),
        now=EPOCH + mono + clock_jump,
        mono=mono,
        late_by=late_by,
        observed_since=0.0,
        deployment=deployed,
        resource_version="1",
        uid="d-1",
        instances=tuple(instances),
        replica_sets=(),
        remediations={},
        nodes=None,
        fleet=Fleet(instances=len(instances), newly_sick=0, actions_last_hour=0),
    )


@dataclass
class Stage:
    """Runs the judge pass by pass over one deployment. `wait` seconds lie between passes."""

    deployed: DeepSeekV4Deployment = field(default_factory=deployment)
    memory: Memory = field(default_factory=Memory)
    mono: float = 0.0
    step: float = 5.0
    clock_jump: float = 0.0
    times: Times = field(init=False)
    sent: list[Canary] = field(default_factory=list)
    ended: list[CanaryResult] = field(default_factory=list)
    last: Judgement | None = None

    def __post_init__(self) -> None:
        self.times = effective_times(self.deployed.spec)
        self.step = self.times.scrape_interval

    def look(
        self, pages: Mapping[str, str | Failure], late_by: float = 0.0, **changes: Mapping[str, Any]
    ) -> Judgement:
        """One pass: the page (or failure) of each instance by UID; `changes` of instance fields by UID."""
        self.mono += self.step + late_by
        seen = []
        for uid, page in pages.items():
            scrape = Page(page, self.mono) if isinstance(page, str) else Failed(page, "test", self.mono)
            mine = tuple(r for r in self.ended if r.canary.process.uid == uid)
            seen.append(instance(uid, scrape, canaries=mine, **changes.get(uid.replace("-", "_"), {})))
        self.ended = []
        shot = snapshot(seen, self.mono, self.deployed, late_by, self.clock_jump)
        self.last = judge(shot, self.times, self.memory)
        self.sent += self.last.probes
        return self.last

    def end(self, canary: Canary, outcome: CanaryOutcome = CanaryOutcome.ANSWERED, status: int = 200) -> None:
        """Report to the next pass that `canary` ended just before it."""
        self.ended.append(CanaryResult(canary, outcome, self.mono + 0.3, status))

    def answer_all(self) -> None:
        """Answer every canary that the last pass sent."""
        for canary in self.last.probes if self.last is not None else ():
            self.end(canary)


def only(judgement: Judgement) -> InstanceVerdict:
    """The verdict where there is one instance."""
    (verdict,) = judgement.verdicts.values()
    return verdict
