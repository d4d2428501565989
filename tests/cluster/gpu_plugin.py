"""Fake GPUs: a driver that speaks the kubelet's real device plugin protocol for `nvidia.com/gpu`.

Run on a node as `python -m tests.cluster.gpu_plugin FOLDER COUNT PREFIX FILE`. FOLDER is the kubelet's device-plugins
folder; the devices are PREFIX0, PREFIX1, ...; those whose numbers stand in FILE are reported unhealthy, and where the word
`refuse` stands there, no container is given any.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

RESOURCE = "nvidia.com/gpu"
_ENDPOINT = "kintsugi-gpus.sock"
_KUBELET = "kubelet.sock"
_LOOK_SECONDS = 0.3
REFUSE = "refuse"


def devices(count: int, prefix: str, unhealthy: str) -> list[tuple[str, str]]:
    """Id and health of each device; `unhealthy` is what the file says: numbers between white space."""
    sick = set(unhealthy.split())
    return [(f"{prefix}{i}", "Unhealthy" if str(i) in sick else "Healthy") for i in range(count)]


class Plugin:
    """The driver's side of the protocol; `messages` are the classes of deviceplugin.proto."""

    def __init__(self, messages: Any, count: int, prefix: str, file: Path) -> None:
        self._messages, self._count, self._prefix, self._file = messages, count, prefix, file

    def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:
        return self._messages.DevicePluginOptions()

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[Any]:
        told = None
        while context.is_active():
            text = self._file.read_text() if self._file.exists() else ""
            now = devices(self._count, self._prefix, text)
            if now != told:
                told = now
                listed = [self._messages.Device(ID=name, health=health) for name, health in now]
                yield self._messages.ListAndWatchResponse(devices=listed)
            time.sleep(_LOOK_SECONDS)

    def Allocate(self, request: Any, context: Any) -> Any:
        if self._file.exists() and REFUSE in self._file.read_text().split():
            context.abort(grpc.StatusCode.INTERNAL, "the driver lost its GPUs")
        answers = [
            self._messages.ContainerAllocateResponse(
                envs={"NVIDIA_VISIBLE_DEVICES": ",".join(asked.devices_ids)}
            )
            for asked in request.container_requests
        ]
        return self._messages.AllocateResponse(container_responses=answers)


def _register(messages: Any, services: Any) -> None:
    with grpc.insecure_channel(f"unix:{_KUBELET}") as channel:
        request = messages.RegisterRequest(version="v1beta1", endpoint=_ENDPOINT, resource_name=RESOURCE)
        services.RegistrationStub(channel).Register(request, timeout=5)


def _kubelet_socket() -> int | None:
    try:
        return os.stat(_KUBELET).st_ino
    except FileNotFoundError:
        return None


def main(folder: str, count: str, prefix: str, file: str) -> None:
    messages, services = grpc.protos_and_services("tests/cluster/deviceplugin.proto")
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)  # a Unix socket's path is limited, and gRPC makes relative ones absolute only for itself
    server: Any = None
    registered: int | None = None
    while True:
        kubelet = _kubelet_socket()
        # A kubelet that starts empties the folder, our socket included, and knows no plugin.
        if kubelet is not None and kubelet != registered:
            if server is not None:
                server.stop(grace=0).wait()
            Path(_ENDPOINT).unlink(missing_ok=True)
            server = grpc.server(futures.ThreadPoolExecutor(4))
            services.add_DevicePluginServicer_to_server(
                Plugin(messages, int(count), prefix, Path(file)), server
            )
            server.add_insecure_port(f"unix:{_ENDPOINT}")
            server.start()
            try:
                _register(messages, services)
                registered = kubelet
            except grpc.RpcError as refusal:
                print(f"the kubelet did not take us: {refusal}", flush=True)
        time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
