import json
import subprocess
import sys
import time

import pytest

from tests.demo.traffic import Source, Traffic, arguments


def sender(script: str) -> Source:
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    return Source(process, process.terminate)


def test_every_request_of_the_report_is_kept_also_those_that_end_after_the_stop() -> None:
    line = json.dumps({"type": "request", "id": "a", "target": "long", "started": 1.0, "error": ""})
    late = line.replace('"a"', '"b"')
    script = f"""
import signal, sys, time
def last(*_):
    print({late!r}, flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, last)
print({line!r}, flush=True)
while True:
    time.sleep(0.05)
"""
    traffic = Traffic(sender(script))
    while not traffic.sent:
        assert traffic.running
    assert [one.id for one in traffic.stop(10.0)] == ["a", "b"]


def test_a_report_that_can_not_be_read_is_no_report() -> None:
    traffic = Traffic(sender("print('{')"))
    while traffic.running:
        time.sleep(0.01)
    with pytest.raises(RuntimeError, match="report"):
        traffic.stop(10.0)


def test_a_sender_that_does_not_end_is_ended() -> None:
    traffic = Traffic(
        sender("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)")
    )
    assert traffic.stop(1.0) == []
    assert not traffic.running


def test_each_pool_has_its_own_service_and_rate() -> None:
    words = arguments({"short": "http://s", "long": "http://l"}, {"short": 8.0, "long": 5.0}, "m")
    assert words[:4] == ["--target", "short=http://s", "--target", "long=http://l"]
    assert words[4:10] == ["--rate", "short=8.0", "--rate", "long=5.0", "--model", "m"]
