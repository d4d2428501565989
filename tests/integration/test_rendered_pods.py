"""A real API server takes every pod that we render: its rules are more than its schema."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kintsugi.api.effective import pools_of
from kintsugi.api.objects import parse_deployment
from kintsugi.core.pod.group import group_template
from kintsugi.core.render import pod_template, pool_labels
from tests.cluster.cluster import Cluster
from tests.unit.api.manifests import example_deployments
from tests.unit.pod.pods import FLASH

pytestmark = pytest.mark.cluster

FIELD_LIST = Path(__file__).parents[1] / "unit" / "pod" / "field_list.yaml"
Json = dict[str, Any]


def templates(raw: Json) -> list[Json]:
    """The pod templates of all pools, those of leaders and workers too."""
    spec = parse_deployment(raw).spec
    found = []
    for pool in pools_of(spec):
        labels = pool_labels("chat", pool.name)
        if (pool.hardware.nodes_per_instance or 1) > 1:
            made = group_template(spec, pool, labels)
            found += [made["leaderTemplate"], made["workerTemplate"]]
        else:
            found.append(pod_template(spec, pool, labels))
    return found


def owner(name: str, template: Json) -> Json:
    selector = {"matchLabels": {"kintsugi.dev/deployment": "chat"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {"replicas": 0, "selector": selector, "template": template},
    }


def offer(cluster: Cluster, namespace: str, found: list[Json]) -> None:
    """Offer ReplicaSets of these templates; nothing is stored. Raises with what the API server says."""
    items = [owner(f"case-{index}", template) for index, template in enumerate(found)]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    said = cluster.kubectl("-n", namespace, "create", "--dry-run=server", "-f", "-", input=text)
    assert said.count("created") == len(found)


def test_the_pods_of_every_example(cluster: Cluster, namespace: str) -> None:
    offer(cluster, namespace, [template for _, raw in example_deployments() for template in templates(raw)])


def test_the_pods_with_everything_that_people_need_to_say(cluster: Cluster, namespace: str) -> None:
    cases = yaml.safe_load(FIELD_LIST.read_text())
    raws = [
        {"metadata": {"name": "chat"}, "spec": {"model": {"id": FLASH}, **case["spec"]}} for case in cases
    ]
    offer(cluster, namespace, [template for raw in raws for template in templates(raw)])
