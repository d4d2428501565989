"""The process that computes. It ends with the server, whatever way that one ends."""

import contextlib
import ctypes
import os
import signal
import sys
import time
import traceback
from multiprocessing.connection import Connection
from typing import Final

from kintsugi_engine.native.messages import (
    Abort,
    Compact,
    Compacted,
    Facts,
    Failed,
    Order,
    Step,
    Stop,
    Submit,
)  # fmt: skip
from kintsugi_engine.native.options import Options
from kintsugi_engine.native.refused import Refused

PR_SET_PDEATHSIG: Final = 1
"""`prctl(2)`: the signal that this process gets when its parent ends."""
PR_SET_NAME: Final = 15
"""`prctl(2)`: the name that tools show. It is vLLM's name for the same."""

IDLE_SECONDS: Final = 5.0
"""How often an idle engine says that it lives."""


def main(pipe: Connection, options: Options) -> None:
    """Load, say so, and work until told to stop or the server is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(PR_SET_NAME, b"EngineCore")
    with contextlib.suppress(
        EOFError, BrokenPipeError, ConnectionResetError
    ):  # the server is gone: so are we
        try:
            _serve(pipe, options)
        except Refused as error:
            pipe.send(Failed(str(error), refused=True))
            raise SystemExit(1) from None
        except Exception as error:  # noqa: BLE001 - the server must say why
            traceback.print_exc()
            pipe.send(Failed(f"{type(error).__name__}: {error}", refused=False))
            raise SystemExit(1) from None


def _say(line: str) -> None:
    print(f"kintsugi-engine native: {line}", file=sys.stderr, flush=True)


def _serve(pipe: Connection, options: Options) -> None:
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    # Seconds of imports, which the server's own process is spared.
    from kintsugi_engine.native import memory
    from kintsugi_engine.native.core import Engine
    from kintsugi_engine.native.loading import load

    loaded = load(options, _say)
    model, store = loaded.model, loaded.store
    engine = Engine(
        model, store, loaded.eos_ids, options.chunk_tokens, time.monotonic, by_priority=options.priority
    )
    pipe.send(
        Facts(
            slots=store.slots,
            slot_bytes=store.slot_bytes,
            max_tokens=store.max_tokens,
            eos_ids=loaded.eos_ids,
            model_bytes=loaded.model_bytes,
            device=str(model.device),
            dtype=str(model.dtype).removeprefix("torch."),
            architecture=type(model).__name__,
            vocabulary=model.config.get_text_config(decoder=True).vocab_size,
        )
    )
    while True:
        changed = False
        while pipe.poll(0 if engine.busy or changed else IDLE_SECONDS):
            order: Order = pipe.recv()
            changed = True
            match order:
                case Submit():
                    engine.submit(order)
                case Abort():
                    engine.abort(order.id)
                case Compact():
                    pipe.send(Compacted(memory.release(model.device)))
                case Stop():
                    return
        if engine.busy:
            pipe.send(engine.step())
        else:
            pipe.send(Step(engine.gauges(), time.monotonic()))  # alive, and nothing to do
