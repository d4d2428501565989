"""A real Prometheus server with a history that needed no hour to come about: blocks are made of it, and then served."""

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kintsugi.core.backtest.observation import Observed
from kintsugi.core.snapshot import Page
from tests.cluster.machine import exclusive
from tests.cluster.paths import cache_root

PACKAGE = "prometheus"
"""Debian's own; only its two programs are used, and nothing is installed or started by its scripts."""


def programs() -> tuple[Path, Path]:
    """(prometheus, promtool): those on PATH, else out of the Debian package, fetched once for each machine."""
    server, tool = shutil.which("prometheus"), shutil.which("promtool")
    if server and tool:
        return Path(server), Path(tool)
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("needs the programs prometheus and promtool, and this is no Debian to fetch them from")
    root = cache_root() / "debian" / PACKAGE
    with exclusive(cache_root() / "debian" / "lock"):
        if not (root / "usr/bin/promtool").exists():
            _fetch(root)
    return root / "usr/bin/prometheus", root / "usr/bin/promtool"


def _fetch(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
    scratch = root.with_name(f"{PACKAGE}.new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    fetch = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", PACKAGE]
    answer = subprocess.run(fetch, cwd=scratch, check=False, capture_output=True, text=True)
    if answer.returncode != 0:
        subprocess.run(["apt-get", "-qq", "update"], check=False, capture_output=True)
        answer = subprocess.run(fetch, cwd=scratch, check=False, capture_output=True, text=True)
    if answer.returncode != 0:
        raise RuntimeError(f"apt-get download {PACKAGE} failed: {answer.stderr.strip()[-500:]}")
    (package,) = scratch.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", package.name, "."], cwd=scratch, check=True, capture_output=True)
    package.unlink()
    scratch.rename(root)


def open_metrics(looks: Iterable[Observed], prefix: str = "", namespace: str = "llm") -> str:
    """What a server scraped of these engines: every page at its second, with the labels of its target, and `up`."""
    lines: list[str] = []
    for seen in looks:
        instance = seen.instance
        target = f'namespace="{namespace}",pod="{instance.name}",job="llm/chat",instance="{instance.pod_ip or "10.0.0.9"}:8000"'
        scraped = isinstance(instance.scrape, Page)
        lines.append(f"up{{{target}}} {int(scraped)} {seen.time:.3f}")
        if not isinstance(instance.scrape, Page):
            continue
        for line in instance.scrape.text.splitlines():
            series, _, number = line.rpartition(" ")
            name, _, labels = series.partition("{")
            inside = ",".join(part for part in (labels.rstrip("}"), target) if part)
            lines.append(f"{prefix}{name}{{{inside}}} {number} {seen.time:.3f}")
    # Samples of a series need not stand together, but must be in order of time, which they are.
    return "\n".join([*lines, "# EOF"]) + "\n"


@contextmanager
def served(text: str, folder: Path) -> Iterator[str]:
    """The base URL of a server on the loopback address that holds `text` (OpenMetrics) as its history."""
    server, tool = programs()
    source, data, settings = folder / "history.om", folder / "data", folder / "prometheus.yml"
    source.write_text(text)
    settings.write_text("global: {scrape_interval: 1m}\n")
    made = subprocess.run(
        [str(tool), "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(source), str(data)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    with (folder / "server.log").open("w") as log, pytest.MonkeyPatch.context() as environment:
        environment.setenv("NO_PROXY", "127.0.0.1")  # whatever stands between this machine and others
        process = subprocess.Popen(
            [
                str(server),
                f"--config.file={settings}",
                f"--storage.tsdb.path={data}",
                "--storage.tsdb.retention.time=100y",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait(url, process, folder / "server.log")
            yield url
        finally:
            process.terminate()
            process.wait(timeout=20)


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise TimeoutError(log.read_text()[-2000:])


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
