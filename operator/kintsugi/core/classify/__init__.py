"""Why a pod does not start, from what Kubernetes and the engine say of it; pure, and the same for rollout and healing."""

from kintsugi.core.classify.classify import classify
from kintsugi.core.classify.facts import StartFacts, Told
from kintsugi.core.classify.failure import Kind, Retry, StartFailure

__all__ = ["Kind", "Retry", "StartFacts", "StartFailure", "Told", "classify"]
