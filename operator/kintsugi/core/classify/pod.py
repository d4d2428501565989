"""What Kubernetes itself says of a pod that does not start: phase, waiting containers, Events."""

import re
from typing import Final

from kintsugi.core.classify import kinds
from kintsugi.core.classify.facts import OTHER_CONTAINER, StartFacts
from kintsugi.core.classify.failure import Kind, StartFailure, made
from kintsugi.core.classify.lines import one_line

IMAGE_WAITS: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
CONFIG_WAITS: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
CREATING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Waits of a pod that is on its way."""
REFUSED: Final = re.compile(
    r"^(?:UnexpectedAdmissionError|OutOf[\w./-]+|NodeAffinity|NodePorts|TopologyAffinityError|NodeShutdown|Preempting"
    r"|AdmissionError|Terminated|InvalidNodeInfo|PodResourcesError)$"
)
"""Reasons of the kubelet for not taking a pod that was bound to it (S24: k8s-device-plugin#231)."""
_DISK: Final = re.compile(
    r"ephemeral.{0,8}storage|disk.?pressure|nodefs|imagefs|Usage of EmptyDir volume", re.IGNORECASE
)
_GOES_ON: Final = frozenset({"SuccessfulAttachVolume", "Pulling", "Pulled", "Created", "Started"})
_BACK_OFF: Final = re.compile(r'^Back-off pulling image ("[^"]*")(?:: (?:\w+: )?(?P<why>.+))?', re.DOTALL)
"""The kubelet's two words for one failure take turns; what is said must not, or status would be written each time."""
_KEY: Final = re.compile(
    r"couldn't find key (?P<key>\S+) in (?P<what>Secret|ConfigMap) (?P<name>\S+)", re.IGNORECASE
)
_OBJECT: Final = re.compile(r"(?P<what>secret|configmap) \"(?P<name>[^\"]+)\" not found", re.IGNORECASE)
_CLAIM: Final = re.compile(
    r"persistentvolumeclaim \"?(?P<name>[^\"\s]+)\"?(?:\" )? ?not found", re.IGNORECASE
)
_UNBOUND: Final = re.compile(
    r"unbound immediate PersistentVolumeClaims?|waiting for first consumer|volume binding", re.IGNORECASE
)
_ATTACHED: Final = re.compile(
    r"Multi-Attach error|already (?:exclusively )?attached to (?:one|another) node|is already used by pod",
    re.IGNORECASE,
)


def of_pod(start: StartFacts) -> StartFailure | None:
    """Why Kubernetes does not get as far as the engine; None where it does."""
    if start.phase == "Failed":
        return _ended(start)
    if not start.scheduled:
        return _unscheduled(start)
    if start.waiting_reason in IMAGE_WAITS:
        return _found(start, kinds.IMAGE_PULL, _pull(start))
    if start.waiting_reason in CONFIG_WAITS:
        return _configuration(start)
    if start.waiting_reason in CREATING and start.exit_code is None:
        return _mounting(start)
    return None


def _found(start: StartFacts, kind: Kind, said: str, field: str = "") -> StartFailure:
    if OTHER_CONTAINER.match(said):
        field = "podTemplate"
    return made(kind, one_line(said), start.path(field or kind.field))


def _pull(start: StartFacts) -> str:
    said = start.waiting_message or start.waiting_reason
    back_off = _BACK_OFF.match(said)
    if back_off is None:
        return said
    return back_off["why"] or f"image {back_off[1]} can't be pulled"


def _ended(start: StartFacts) -> StartFailure | None:
    said = f"{start.phase_reason}: {start.phase_message}".strip(": ")
    if start.phase_reason == "Evicted":
        return _found(start, kinds.DISK_FULL if _DISK.search(said) else kinds.EVICTED, said)
    if REFUSED.match(start.phase_reason):
        return _found(start, kinds.NODE_REFUSED, said)
    return None


def _unscheduled(start: StartFacts) -> StartFailure | None:
    said = start.phase_message
    claim = _CLAIM.search(said)
    if claim:
        return _claim(start, kinds.PVC_NOT_FOUND, said, claim["name"])
    if _UNBOUND.search(said):
        return _claim(start, kinds.PVC_UNBOUND, said, "")
    if start.phase_reason != "Unschedulable" and not said:
        return None
    if start.phase_reason == "SchedulingGated":
        return None
    return _found(start, kinds.UNSCHEDULABLE, said or start.phase_reason)


def _claim(start: StartFacts, kind: Kind, said: str, name: str) -> StartFailure:
    """About a claim; one that no typed field names comes from the user's pod template."""
    if not name:
        return _found(start, kind, said)
    known = [field for field, claim in start.claims if claim == name]
    field = known[0] if known else (kind.field if not start.claims else "podTemplate")
    return _found(start, kind, f"PersistentVolumeClaim {name} not found", field)


def _configuration(start: StartFacts) -> StartFailure:
    said = start.waiting_message or start.waiting_reason
    key = _KEY.search(said)
    if key:
        name = key["name"].rpartition("/")[2].rstrip(".,")
        text = f"{key['what']} {name} has no key {key['key']}"
        return made(kinds.KEY_NOT_FOUND, one_line(text), start.path(_reference(start, said)))
    lacking = _OBJECT.search(said)
    if lacking:
        secret = lacking["what"].lower() == "secret"
        kind = kinds.SECRET_NOT_FOUND if secret else kinds.CONFIG_MAP_NOT_FOUND
        text = f"{'Secret' if secret else 'ConfigMap'} {lacking['name']} not found"
        return made(kind, one_line(text), start.path(_reference(start, lacking["name"])))
    if re.search(r"executable file not found|no such file or directory|exec format error", said):
        return _found(start, kinds.CONFIG_INVALID, said, "podTemplate")
    return _found(start, kinds.CONTAINER_CONFIG, said)


def _reference(start: StartFacts, said: str) -> str:
    """Which field refers to the object: the one whose name is said, as far as the facts tell; else the environment."""
    if OTHER_CONTAINER.match(start.waiting_message):
        return "podTemplate"
    named = [field for field, name in start.references if name and name in said]
    return named[0] if named else "engine"


def _mounting(start: StartFacts) -> StartFailure | None:
    """A pod that is being created, and for which mounting a volume fails again and again."""
    for event in reversed(start.events):
        if event.reason in _GOES_ON:
            return None  # what could not be mounted before is there now
        if event.reason not in (
            "FailedMount",
            "FailedAttachVolume",
            "FailedMapVolume",
            "FailedCreatePodSandBox",
        ):
            continue
        if event.reason == "FailedCreatePodSandBox":
            return _found(start, kinds.SANDBOX_FAILED, event.message)
        claim = _CLAIM.search(event.message)
        lacking = _OBJECT.search(event.message)
        if claim:
            return _claim(start, kinds.PVC_NOT_FOUND, event.message, claim["name"])
        if _ATTACHED.search(event.message):
            return _found(start, kinds.MULTI_ATTACH, event.message)
        if lacking:
            secret = lacking["what"].lower() == "secret"
            kind = kinds.SECRET_NOT_FOUND if secret else kinds.CONFIG_MAP_NOT_FOUND
            text = f"{'Secret' if secret else 'ConfigMap'} {lacking['name']} not found"
            return made(kind, one_line(text), start.path("podTemplate"))
        return _found(start, kinds.MOUNT_FAILED, event.message)
    return None
