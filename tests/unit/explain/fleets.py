"""Deployments as `kubectl get -o json` shows them, for explanations."""

from typing import Any

NOON = "2026-11-29T12:00:00Z"


def deployment(status: dict[str, Any] | None = None, **healing: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kintsugi.dev/v1alpha1",
        "kind": "DeepSeekV4Deployment",
        "metadata": {"name": "chat", "namespace": "llm", "uid": "d-1", "generation": 3},
        "spec": {"model": {"id": "deepseek-ai/DeepSeek-V4-Flash-0731"}, "healing": healing},
        "status": {"observedGeneration": 3, "ready": "2/2", "healing": "Act"} if status is None else status,
    }


def healthy() -> dict[str, Any]:
    return deployment(
        {
            "observedGeneration": 3,
            "ready": "2/2",
            "healing": "Act",
            "conditions": [
                condition("HealingAllowed", "True", "Ready"),
                condition("DataFresh", "True", "AllRead"),
            ],
            "instances": [
                instance("chat-a", "Healthy", "Progressing"),
                instance("chat-b", "Idle", "NoRequests"),
            ],
        }
    )


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOON}


def instance(name: str, verdict: str, reason: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "uid": f"uid-{name}",
        "pool": "main",
        "node": "n1",
        "verdict": verdict,
        "reason": reason,
        "since": NOON,
        **more,
    }


def finding(detector: str, reason: str, severity: str, message: str = "said so") -> dict[str, Any]:
    return {"detector": detector, "reason": reason, "severity": severity, "message": message, "since": NOON}


def active(victim: str, phase: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"uid-{victim}-1",
        "name": f"chat-{victim}-1",
        "instance": victim,
        "uid": f"uid-{victim}",
        "pool": "main",
        "revision": "r1",
        "trigger": "stall",
        "remedy": "Recreate",
        "lineage": f"uid-{victim}",
        "phase": phase,
        "reservedAt": NOON,
        "detectedAt": NOON,
        "message": "withdrawn",
        **more,
    }


def remediation(victim: str, outcome: str = "Cured", name: str = "chat-x-1") -> dict[str, Any]:
    return {
        "apiVersion": "kintsugi.dev/v1alpha1",
        "kind": "Remediation",
        "metadata": {"name": name, "namespace": "llm", "creationTimestamp": NOON},
        "spec": {
            "deployment": "chat",
            "instance": {"name": victim, "uid": f"uid-{victim}"},
            "pool": "main",
            "revision": "r1",
            "trigger": "stall",
            "remedy": "Recreate",
            "attemptId": f"uid-{victim}-1",
            "lineage": f"uid-{victim}",
        },
        "status": {
            "phase": "Done",
            "outcome": outcome,
            "message": "no step for 300 s",
            "timeline": {"detected": NOON, "finished": "2026-11-29T12:40:00Z"},
            "evidence": [{"signal": "seconds without a step", "value": 312.0, "unit": "s", "samples": 62}],
            "replacement": {"name": "chat-new", "uid": "uid-chat-new"},
        },
    }


def event(about: str, reason: str = "Withdrawn") -> dict[str, Any]:
    return {
        "kind": "Event",
        "metadata": {"namespace": "llm"},
        "involvedObject": {"name": about},
        "reason": reason,
        "type": "Warning",
        "message": f"{about} was withdrawn",
        "lastTimestamp": NOON,
    }
