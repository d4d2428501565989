"""Access to a Kubernetes cluster, ours or anybody's: kubectl, helm, and plain reads without either."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

T = TypeVar("T")


class CommandFailed(RuntimeError):
    """A kubectl or helm that ended with an error; the message holds its words."""


class KubeAccess:
    """One context of one kubeconfig. `programs` is the folder of kubectl and helm; None takes those on PATH.

    What the two keep for later goes to `scratch`; None leaves it where they like.
    """

    def __init__(
        self, kubeconfig: Path, context: str, programs: Path | None = None, scratch: Path | None = None
    ) -> None:
        self.kubeconfig = kubeconfig
        """For clients on this machine."""
        self.context = context
        self.programs = programs
        self._environment = {"KUBECONFIG": str(kubeconfig), **_scratch_variables(scratch)}

    def kubectl(self, *arguments: str, input: str | None = None, timeout_seconds: float = 120) -> str:
        """What `kubectl arguments` printed; `input` goes to its standard input. Raises CommandFailed."""
        return self._run("kubectl", ("--context", self.context), arguments, input, timeout_seconds)

    def helm(self, *arguments: str, input: str | None = None, timeout_seconds: float = 300) -> str:
        """What `helm arguments` printed. Raises CommandFailed."""
        return self._run("helm", ("--kube-context", self.context), arguments, input, timeout_seconds)

    def apply(self, *documents: dict[str, Any]) -> None:
        """`kubectl apply` of the documents, server side."""
        self.kubectl("apply", "--server-side", "-f", "-", input=yaml.safe_dump_all(documents))

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
        """One object by kubectl. Raises CommandFailed if there is none."""
        where = ("-n", namespace) if namespace else ()
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, *where, "-o", "json"))
        return found

    def _run(
        self,
        program: str,
        first: tuple[str, ...],
        arguments: tuple[str, ...],
        input: str | None,
        timeout: float,
    ) -> str:
        path = str(self.programs / program) if self.programs else program
        answer = subprocess.run(
            [path, *first, *arguments],
            check=False,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, **self._environment},
        )
        if answer.returncode != 0:
            raise CommandFailed(
                f"{program} {' '.join(arguments)}: {answer.stderr.strip() or answer.stdout.strip()}"
            )
        return answer.stdout


def _scratch_variables(scratch: Path | None) -> dict[str, str]:
    """A port may be another cluster's tomorrow: kubectl must not believe then what it has learnt behind it today."""
    if scratch is None:
        return {}
    helm = {f"HELM_{kind}_HOME": str(scratch / "helm" / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
    return {"KUBECACHEDIR": str(scratch / "kubectl"), **helm}


class ApiReader:
    """Reads of the API server over HTTPS: a hundred times cheaper than a kubectl, for loops that wait."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self._server = cluster["server"]
        tls = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
        with tempfile.NamedTemporaryFile() as pair:
            for part in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[part]))
            pair.flush()
            tls.load_cert_chain(pair.name)
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
        )

    def text(self, path: str) -> str | None:
        """The body at `path`; None while the server does not answer with 200."""
        try:
            with self._opener.open(f"{self._server}{path}", timeout=10) as answer:
                body: bytes = answer.read()
                return body.decode()
        except (urllib.error.URLError, ConnectionError, TimeoutError, ssl.SSLError):
            return None

    def json(self, path: str) -> dict[str, Any] | None:
        body = self.text(path)
        found: dict[str, Any] | None = json.loads(body) if body is not None else None
        return found


def wait_for(
    what: str, look: Callable[[], T | None], timeout_seconds: float, *, every_seconds: float = 0.1
) -> T:
    """The first true answer of `look`. Raises TimeoutError naming `what` if there is none in time."""
    deadline = time.monotonic() + timeout_seconds
    while not (answer := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_seconds:.0f} s: {what}")
        time.sleep(every_seconds)
    return answer
