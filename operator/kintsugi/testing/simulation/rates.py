"""How often instances fail, for `kintsugi simulate`. Hardware rates are published; engine software's are not.

* Hardware: 419 unexpected interruptions in 54 days on 16,384 GPUs, 148 of them faulty GPUs and 72 their memory
  ("The Llama 3 Herd of Models", arXiv 2407.21783, table 5): one in 50,700 GPU-hours, so one in 264 days for an
  instance of eight. Training finds every one of them; serving may not.
* Engine software: nobody publishes a rate. Assumed: one fault in seven days of an instance, the figure with which the
  storm rule was simulated, shared among the kinds that vLLM's issue tracker tells of. `--fault-days` sets it.
* Pauses and neighbours that pass by themselves: as in `mishaps`.
"""

from dataclasses import dataclass
from typing import Final

GPU_HOURS_PER_HARDWARE_FAULT: Final = 54 * 24 * 16_384 / 419
SOFTWARE_FAULT_DAYS: Final = 7.0
SOFTWARE: Final = {
    "hang": 0.30,
    "crash": 0.35,
    "fragmentation": 0.15,
    "slow": 0.10,
    "erroring": 0.10,
}
"""Shares of the kinds; assumed."""
PAUSES_PER_HOUR: Final = 0.014
"""Of 30 s and more, which end by themselves (the pause model of `mishaps`)."""
NEIGHBOURS_PER_HOUR: Final = 0.04
PERSON_MINUTES: Final = 20.0
"""Until a person has seen and removed a sick instance where healing only observes: 5 to 22 minutes (design §11)."""
START_SECONDS: Final = 300.0
"""From the start of a container to Ready; weights from a local volume."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Faults an hour of one instance."""

    software: float
    hardware: float


def rates(fault_days: float, gpus: int) -> Rates:
    """For one software fault in `fault_days` days of an instance that holds `gpus` GPUs."""
    return Rates(1 / (24 * fault_days), gpus / GPU_HOURS_PER_HARDWARE_FAULT)
