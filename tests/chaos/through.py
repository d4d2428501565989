"""The proxy of the chaos suite as a process beside a cluster's API server, for one operator each."""

import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

from tests.chaos.proxy import Trouble
from tests.cluster import control_plane
from tests.cluster.cluster import Cluster
from tests.cluster.configs import ControlPlaneFiles, api_server_url
from tests.cluster.names import CONTROL_PLANE_IP
from tests.cluster.paths import REPOSITORY

Counts = dict[str, int]


class ApiProxy:
    """Stands before the API server of `cluster` on a port of its own, with the API server's own certificate."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        self.port = port
        keys = ControlPlaneFiles(cluster.spec.folder).keys
        self._process: subprocess.Popen[Any] = cluster.popen_inside(
            [
                *(sys.executable, "-m", "tests.chaos.proxy"),
                *("--listen", f"{CONTROL_PLANE_IP}:{port}", "--upstream", api_server_url()),
                *("--certificate", str(keys / f"{control_plane.API_SERVER}.crt")),
                *("--key", str(keys / f"{control_plane.API_SERVER}.key")),
                *("--authority", str(keys / "ca.crt")),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        self._answer()

    @property
    def values(self) -> dict[str, Any]:
        """Values of the chart that lead an operator through this proxy instead of straight to the API server."""
        where = {"KUBERNETES_SERVICE_HOST": CONTROL_PLANE_IP, "KUBERNETES_SERVICE_PORT": str(self.port)}
        return {"extraEnv": [{"name": name, "value": value} for name, value in where.items()]}

    def make(self, **trouble: Any) -> Counts:
        """This trouble from now on, none without arguments; what became of the requests before."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(Trouble(**trouble))) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End it; its clients meet refused connections then."""
        self._process.terminate()
        self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _answer(self) -> Counts:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the proxy has ended; what it said stands above")
        counts: Counts = json.loads(line)
        return counts
