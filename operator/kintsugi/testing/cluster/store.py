"""The API server's memory: raw objects with UID, resourceVersion and generation, and who may change what."""

import marshal
import random
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

from kintsugi.ports.errors import AlreadyExists, Conflict, Invalid, NotFound
from kintsugi.testing.cluster.schema import Schemas

Json: TypeAlias = dict[str, Any]
Listener: TypeAlias = Callable[[str, Json | None, Json | None], None]
"""Called with (kind, before, after) on each change; `after` is None once the object is gone."""

STATUS_KINDS = frozenset(
    {"Pod", "ReplicaSet", "Node", "DeepSeekV4Deployment", "Remediation", "PodDisruptionBudget"}
)
"""Kinds with a status subresource: a write to the object leaves its status alone, and the other way round."""


def stamp(seconds: float) -> str:
    """`seconds` (epoch) as Kubernetes writes times."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clone(value: Json) -> Json:
    """A copy that shares nothing; far quicker than `copy.deepcopy` and refuses anything that is not plain JSON."""
    copied: Json = marshal.loads(marshal.dumps(value))
    return copied


class ObjectStore:
    """Objects by kind, namespace and name. Everything that goes in or out is a copy."""

    def __init__(self, now: Callable[[], float], rng: random.Random, schemas: Schemas) -> None:
        self._now = now
        self._rng = rng
        self._schemas = schemas
        self._objects: dict[str, dict[str, dict[str, Json]]] = {}
        self._version = 1000
        self._listeners: list[Listener] = []
        self.pruned: list[str] = []
        """Every unknown field that a schema has dropped so far, as `Kind.path`."""

    @property
    def version(self) -> int:
        """Rises with every change of anything."""
        return self._version

    def listen(self, listener: Listener) -> None:
        """Tell `listener` of each change from now on."""
        self._listeners.append(listener)

    def kinds(self) -> list[str]:
        """Every kind of which there has been an object."""
        return sorted(self._objects)

    def find(self, kind: str, namespace: str, name: str) -> Json | None:
        """A copy of the object, or None."""
        held = self._held(kind, namespace, name)
        return None if held is None else clone(held)

    def each(self, kind: str, namespace: str | None = None) -> Iterator[Json]:
        """The stored objects themselves, to be looked at only, in order of namespace and name."""
        spaces = self._objects.get(kind, {})
        for space in sorted(spaces) if namespace is None else (namespace,):
            held = spaces.get(space, {})
            for name in sorted(held):
                if name in held:
                    yield held[name]

    def create(self, given: Mapping[str, Any]) -> Json:
        """Store a new object; AlreadyExists by name, Invalid by its schema."""
        made = clone(dict(given))
        kind = str(made.get("kind") or "")
        if not kind or not made.get("apiVersion"):
            raise Invalid("object without apiVersion or kind")
        meta = made.setdefault("metadata", {})
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"][:58] + self.suffix()
        name, namespace = meta.get("name"), meta.setdefault("namespace", "")
        if not name:
            raise Invalid("metadata.name: Required value")
        if meta.get("resourceVersion"):
            raise Invalid("metadata.resourceVersion: must not be set on create")
        if self._held(kind, namespace, name) is not None:
            raise AlreadyExists(f"{kind} {namespace}/{name} already exists")
        if not namespace:
            del meta["namespace"]
        if kind in STATUS_KINDS:
            made.pop("status", None)
        meta |= {"uid": self._uid(), "creationTimestamp": stamp(self._now()), "generation": 1}
        self._save(kind, None, self._checked(kind, made))
        return clone(made)

    def update(self, kind: str, namespace: str, name: str, change: Callable[[Json], Json | None]) -> Json:
        """Change the object itself; its status, UID and creation time stay. `change` gets a copy.

        A `metadata.uid` or `metadata.resourceVersion` that differs from the stored one is a Conflict.
        """
        before = self._must(kind, namespace, name)
        given = clone(before)
        after = change(given) or given
        self._precondition(before, after)
        after["metadata"] |= {
            key: before["metadata"][key] for key in ("uid", "creationTimestamp", "generation")
        }
        if kind in STATUS_KINDS:
            after.pop("status", None)
            if "status" in before:
                after["status"] = clone(before)["status"]
        after = self._checked(kind, after)
        if after.get("spec") != before.get("spec"):
            after["metadata"]["generation"] = before["metadata"]["generation"] + 1
        return self._save(kind, before, after)

    def update_status(
        self, kind: str, namespace: str, name: str, change: Callable[[Json], Json | None]
    ) -> Json:
        """Change the status alone; everything else that `change` does is dropped, preconditions excepted."""
        before = self._must(kind, namespace, name)
        given = clone(before)
        after = change(given) or given
        self._precondition(before, after)
        merged = clone(before)
        merged.pop("status", None)
        if "status" in after:
            merged["status"] = after["status"]
        return self._save(kind, before, self._checked(kind, merged))

    def mark_deleted(self, kind: str, namespace: str, name: str, grace_seconds: float) -> None:
        """Set the deletion timestamp, as a graceful delete does; a shorter grace later shortens it."""
        before = self._must(kind, namespace, name)
        after = clone(before)
        meta = after["metadata"]
        if "deletionTimestamp" in meta and meta.get("deletionGracePeriodSeconds", 0) <= grace_seconds:
            return
        meta |= {
            "deletionTimestamp": stamp(self._now() + grace_seconds),
            "deletionGracePeriodSeconds": int(grace_seconds),
        }
        meta["generation"] = before["metadata"]["generation"] + 1
        self._save(kind, before, after)

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Forget the object; NotFound where it is not there."""
        before = self._must(kind, namespace, name)
        del self._objects[kind][namespace][name]
        self._version += 1
        for listener in self._listeners:
            listener(kind, before, None)

    def suffix(self) -> str:
        """Five characters for a generated name, from Kubernetes' own alphabet."""
        return "".join(self._rng.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))

    def _save(self, kind: str, before: Json | None, after: Json) -> Json:
        """Store `after`; a write that changes nothing keeps the resourceVersion, as the real server does."""
        meta = after["metadata"]
        if before is not None:
            meta["resourceVersion"] = before["metadata"]["resourceVersion"]
            if after == before:
                return clone(before)
        self._version += 1
        meta["resourceVersion"] = str(self._version)
        stored = clone(after)
        space = self._objects.setdefault(kind, {}).setdefault(meta.get("namespace", ""), {})
        space[meta["name"]] = stored
        for listener in self._listeners:
            listener(kind, before, stored)
        return clone(stored)

    def _checked(self, kind: str, given: Json) -> Json:
        self.pruned += [f"{kind}.{path}" for path in self._schemas.prune(kind, given)]
        self._schemas.fill_defaults(kind, given)
        faults = self._schemas.faults(kind, given)
        if faults:
            raise Invalid(f"{kind} {given['metadata'].get('name')} is invalid: {'; '.join(faults)}")
        return given

    def _precondition(self, before: Json, after: Json) -> None:
        for key in ("uid", "resourceVersion"):
            wanted = after["metadata"].get(key)
            if wanted and wanted != before["metadata"][key]:
                name = before["metadata"]["name"]
                raise Conflict(
                    f"{name}: precondition failed: {key} {wanted}, stored {before['metadata'][key]}"
                )

    def _held(self, kind: str, namespace: str, name: str) -> Json | None:
        return self._objects.get(kind, {}).get(namespace, {}).get(name)

    def _must(self, kind: str, namespace: str, name: str) -> Json:
        held = self._held(kind, namespace, name)
        if held is None:
            raise NotFound(f"{kind} {namespace}/{name} not found")
        return held

    def _uid(self) -> str:
        digits = f"{self._rng.getrandbits(128):032x}"
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
