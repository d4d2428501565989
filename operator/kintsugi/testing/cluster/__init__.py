"""A Kubernetes cluster in memory: `FakeCluster`, its second clients, and the trouble it can be given."""

from kintsugi.testing.cluster.api import FakeApi
from kintsugi.testing.cluster.cluster import FakeCluster
from kintsugi.testing.cluster.faults import OperatorKilled, Write
from kintsugi.testing.cluster.kubelet import Start
from kintsugi.testing.cluster.world import Event

__all__ = ["Event", "FakeApi", "FakeCluster", "OperatorKilled", "Start", "Write"]
