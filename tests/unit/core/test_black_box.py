"""What a black box keeps, what it never keeps, and that it stays small."""

import json

import pytest

from kintsugi.api.remediation import MAX_PAGE, MAX_RECORD, MAX_RECORDS, BlackBox
from kintsugi.core.blackbox import (
    SIZE_LIMIT,
    bounded,
    event_lines,
    named_series,
    plain_statuses,
    record_lines,
    redacted,
    telling_lines,
)

SECRET = "q9XbPz7LwT2m"


@pytest.mark.parametrize(
    "line",
    [
        f"Authorization: Bearer {SECRET}",
        f"authorization: Basic {SECRET}==",
        f"{{'Authorization': 'Bearer {SECRET}', 'accept': '*/*'}}",
        f"--api-key {SECRET} --port 8000",
        f"--api-key={SECRET}",
        f"api_key='{SECRET}', enforce_eager=False",
        f"Namespace(api_key=['{SECRET}'], host=None)",
        f'"api_key": "{SECRET}"',
        f"HF_TOKEN={SECRET}",
        f"export AWS_SECRET_ACCESS_KEY={SECRET}",
        f"AZURE_CLIENT_SECRET={SECRET} rest",
        f"password: {SECRET}",
        f"DB_PASSWORD={SECRET}",
        f"https://user:{SECRET}@proxy.example/simple",
        f"hf_{SECRET}{SECRET}",
        f"token sk-{SECRET}{SECRET}",
        f"eyJhbGciOiJIUzI1NiJ9.{SECRET}{SECRET}.{SECRET}",
        f"-----BEGIN RSA PRIVATE KEY----- {SECRET}",
        f"Received request cmpl-1: prompt: 'my {SECRET} is it\\'s own', params: SamplingParams(n=1)",
        f'prompt: "{SECRET}", sampling_params: None',
        f"messages=[{{'role': 'user', 'content': '{SECRET}'}}]",
        f"Generated response cmpl-1: generated_text: '{SECRET}'",
    ],
)
def test_keys_tokens_passwords_and_prompts_are_redacted(line: str) -> None:
    assert SECRET not in redacted(line)
    assert "[redacted]" in redacted(line)


@pytest.mark.parametrize(
    "line",
    [
        "Engine 000: Avg prompt throughput: 12.3 tokens/s, Running: 4 reqs, Waiting: 0 reqs",
        "max_num_batched_tokens=8192 num_tokens: 7",
        "vllm:generation_tokens_total 1234",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79.1 GiB",
        "RuntimeError: NCCL error in: ../ProcessGroupNCCL.cpp:3384, remote process exited",
        "GET http://127.0.0.1:8000/v1/completions",
    ],
)
def test_what_explains_a_fault_is_left_as_it_is(line: str) -> None:
    assert redacted(line) == line


def test_a_known_secret_is_removed_wherever_it_stands() -> None:
    assert redacted("value is swordfish", ["swordfish"]) == "value is [redacted]"


def test_control_characters_and_colours_do_not_reach_a_terminal() -> None:
    assert "\x1b" not in redacted("\x1b[31mERROR\x1b[0m \x00\x07 boom")
    assert "boom" in redacted("\x1b[31mERROR\x1b[0m \x00\x07 boom")


def test_the_lines_of_probes_and_scrapes_are_left_out_of_the_log() -> None:
    noise = ['INFO: 10.0.0.1:1 - "GET /metrics HTTP/1.1" 200 OK', '"GET /health HTTP/1.1" 200 OK'] * 200
    lines = ["the first word of the fault", *noise, "the last", '"GET /health HTTP/1.1" 503']
    assert telling_lines(lines) == ("the first word of the fault", "the last", '"GET /health HTTP/1.1" 503')


def test_of_a_page_the_series_that_explain_most_come_first_and_buckets_never() -> None:
    page = "\n".join(
        [
            "# HELP vllm:num_requests_running requests",
            *(f'vllm:e2e_request_latency_seconds_bucket{{le="{i}"}} 1' for i in range(300)),
            *(f'vllm:request_params_n_{i}_count{{engine="0",model_name="deepseek"}} 1' for i in range(200)),
            'vllm:num_requests_running{engine="0",model_name="deepseek"} 4.0',
            "python_gc_objects_collected_total 9",
        ]
    )
    kept = named_series(page)
    assert kept.splitlines()[0] == 'vllm:num_requests_running{engine="0"} 4.0'.replace(",}", ",}")
    assert "_bucket" not in kept
    assert "python_gc" not in kept
    assert len(kept.encode()) <= MAX_PAGE


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("process_open_fds 7.0", True),
        ("process_open_fds_created 7.0", False),
        ('vllm:x_bucket{le="1"} 2', False),
        ("vllm:x_bucket 2", False),
        ("vllm:x_bucket", False),
        ('vllm:x_bucket_count{le="1"} 2', True),
        ('vllm:x_total{name="a_bucket"} 2', True),
        ('vllm:x_total{name="a b_created{"} 2', True),
        ('vllm:x_created {name="a"} 2', False),
    ],
)
def test_a_series_is_left_out_by_the_end_of_its_name_and_nothing_else(line: str, kept: bool) -> None:
    assert named_series(line) == (line if kept else "")


def test_series_of_one_weight_stay_in_the_order_of_the_page() -> None:
    page = "vllm:zeta_total 1\nvllm:alpha_total 2\nvllm:num_requests_waiting 3\nvllm:zeta_total 0\n"
    assert named_series(page).splitlines() == [
        "vllm:num_requests_waiting 3",
        "vllm:zeta_total 1",
        "vllm:alpha_total 2",
        "vllm:zeta_total 0",
    ]


def test_container_statuses_come_engine_first_and_without_secrets() -> None:
    pod = {
        "status": {
            "containerStatuses": [
                {"name": "sidecar", "restartCount": 0},
                {
                    "name": "engine",
                    "lastState": {
                        "terminated": {"exitCode": 1, "message": f"HF_TOKEN={SECRET} not accepted"}
                    },
                },
            ]
        }
    }
    found = plain_statuses(pod)
    assert [each["name"] for each in found] == ["engine", "sidecar"]
    assert SECRET not in json.dumps(found)
    assert found[0]["lastState"]["terminated"]["exitCode"] == 1


def test_events_are_told_in_the_order_of_time() -> None:
    events: list[dict[str, object]] = [
        {"lastTimestamp": "2027-01-15T08:02:00Z", "reason": "BackOff", "message": "back-off", "count": 7},
        {"eventTime": "2027-01-15T08:01:00Z", "reason": "Unhealthy", "note": "probe failed"},
    ]
    assert event_lines(events) == (
        "2027-01-15T08:01:00Z Unhealthy: probe failed",
        "2027-01-15T08:02:00Z BackOff: back-off (x7)",
    )


@pytest.mark.parametrize("filling", ['"\\' * 400, "ä" * 800, "x" * 800])
def test_a_black_box_is_bounded_whatever_is_in_it_and_keeps_the_newest_lines(filling: str) -> None:
    box = BlackBox.clipped(
        pages=(filling * 9,) * 5,
        logs=(*[filling] * 300, "the last line"),
        container_statuses=({"name": "engine", "message": filling},) * 20,
        events=(filling,) * 50,
        devices=(filling,) * 50,
    )
    small = bounded(box)
    assert len(json.dumps(small.dump(), ensure_ascii=False).encode()) <= SIZE_LIMIT
    assert small.logs[-1] == "the last line"


POOL = {
    "format": 1,
    "instance": "abc",
    "kind": "pool",
    "rank": "0",
    "engine": "0",
    "pid": 7,
    "at": 1.8e9,
    "age": 31.24,
    "steps": 4711,
    "requests": 3,
    "waste": 0.125,
    "orphaned": 0,
    "blocks": {"active": 12, "cached_free": 3, "empty_free": 985},
    "groups": {"0": {"kind": "FullAttention", "blockSize": 256, "waste": 0.125}},
}


def test_the_engines_own_record_is_a_line_for_each_rank_with_its_age() -> None:
    worker = {
        "kind": "allocator",
        "rank": "0-1",
        "worker": "1",
        "engine": "0",
        "age": 2,
        "fragmentation": 0.61,
    }
    pool, allocator = record_lines([POOL, worker])
    assert pool == (
        "pool of engine 0, 31.2 s old: steps 4711, requests 3, blocks.active 12, blocks.cached_free 3, "
        "blocks.empty_free 985, orphaned 0, waste 0.125, groups.0.blockSize 256, groups.0.waste 0.125"
    )
    assert allocator == "allocator 1 of engine 0, 2.0 s old: fragmentation 0.61"


def test_of_an_odd_record_only_numbers_and_short_words_are_kept_and_it_stays_small() -> None:
    odd = {
        "kind": "my prompt: hello world",
        "engine": SECRET * 9,
        "age": "old",
        "prompt": "tell me of",
        "on": True,
        "none": None,
        "list": [1, 2],
        "nan": float("nan"),
        "huge": 10**400,
        "a b": 1,
        "few": 4,
        "deep": {"a": {"b": {"c": {"d": 1}}}},
    }
    assert record_lines([odd]) == ("rank, of unknown age: few 4",)
    wide = {f"figure{n}": n for n in range(1000)}
    lines = record_lines([wide] * 100)
    assert len(lines) == MAX_RECORDS
    assert all(len(line) <= MAX_RECORD for line in lines)
    full = bounded(BlackBox.clipped(record=lines, logs=("x" * 240,) * 100, pages=("y" * MAX_PAGE,) * 3))
    assert full.record == lines
    assert len(json.dumps(full.dump())) <= SIZE_LIMIT
