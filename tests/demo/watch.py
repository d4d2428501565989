"""Watches on the API server, each on a thread, that feed `Facts` the moment that something happens."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import urllib3
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException

from tests.demo.facts import Facts

GROUP, VERSION = "kintsugi.dev", "v1alpha1"

Feed = Callable[[str, Mapping[str, Any]], None]


class Watches:
    """Pods, the deployment and its Remediations of one namespace. `stop` before the cluster goes."""

    def __init__(self, api: client.ApiClient, namespace: str, deployment: str, facts: Facts) -> None:
        self._core = client.CoreV1Api(api)
        self._custom = client.CustomObjectsApi(api)
        self._namespace = namespace
        self._stopped = threading.Event()
        self._facts = facts
        selector = f"kintsugi.dev/deployment={deployment}"
        custom = {"group": GROUP, "version": VERSION, "namespace": namespace}
        listing = self._custom.list_namespaced_custom_object
        self._threads = [
            self._thread(
                facts.pod, self._core.list_namespaced_pod, namespace=namespace, label_selector=selector
            ),
            self._thread(facts.deployment, listing, **custom, plural="deepseekv4deployments"),
            self._thread(facts.mend, listing, **custom, plural="remediations"),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """No reports after this; the threads end with their connections."""
        self._stopped.set()

    def _thread(self, feed: Feed, listing: Callable[..., Any], **arguments: Any) -> threading.Thread:
        return threading.Thread(target=self._follow, args=(feed, listing, arguments), daemon=True)

    def _follow(self, feed: Feed, listing: Callable[..., Any], arguments: dict[str, Any]) -> None:
        """Without a resourceVersion a watch begins with everything that is there: a broken one just starts again.

        What was deleted in between is missed; a pod's end is seen by its deletionTimestamp, seconds earlier.
        """
        while not self._stopped.is_set():
            try:
                for event in watch.Watch().stream(listing, timeout_seconds=120, **arguments):
                    if self._stopped.is_set():
                        return
                    feed(event["type"], event["raw_object"])
            except (ApiException, urllib3.exceptions.HTTPError):
                self._stopped.wait(0.5)
            except Exception as trouble:
                self._facts.fail(trouble)
                raise
