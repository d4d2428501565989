"""docs/engine-command.md names the figures that are in force."""

from pathlib import Path

from kintsugi.core.catalog.load import builtin
from kintsugi.core.command.offload import GIB, PROFILE_OFFLOAD_BYTES, SIZE
from kintsugi.core.command.render import PROFILE_SEQUENCES, QUEUE_FACTOR, QUEUE_FLAG
from kintsugi.core.command.speculative import MTP_SINCE

TEXT = " ".join((Path(__file__).parents[3] / "docs" / "engine-command.md").read_text().split())


def test_the_page_names_the_figures_in_force() -> None:
    for profile, sequences in PROFILE_SEQUENCES.items():
        assert f"`{profile}` {sequences}" in TEXT
    factors = " and ".join(str(factor) for factor in QUEUE_FACTOR.values())
    assert f"{' and '.join(f'`{profile}`' for profile in QUEUE_FACTOR)} limit" in TEXT
    assert f"to {factors} times" in TEXT
    assert f"{PROFILE_OFFLOAD_BYTES['LongContext'] // GIB} GiB where you say nothing" in TEXT
    assert f"MTP from vLLM {MTP_SINCE.major}.{MTP_SINCE.minor}" in TEXT


def test_the_page_names_the_versions_of_the_catalog() -> None:
    (queue,), (offload,) = (builtin().flag_changes(flag) for flag in (QUEUE_FLAG, SIZE))
    assert queue.added
    assert offload.added
    assert f"From vLLM {queue.added.major}.{queue.added.minor}" in TEXT
    assert f"before vLLM {offload.added.major}.{offload.added.minor}" in TEXT
