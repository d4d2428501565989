"""Which field of the spec a pool's setting comes from, as a JSON path that a person can open."""

from dataclasses import dataclass

from pydantic.alias_generators import to_camel

from kintsugi.api.effective import Pool
from kintsugi.api.model import Model
from kintsugi.api.spec import DeploymentSpec, PoolSpec


@dataclass(frozen=True, slots=True)
class Origins:
    """The fields of one pool: its own ones lie over the deployment's."""

    spec: DeploymentSpec
    index: int | None
    """Position in `spec.pools`; None where the deployment names no pools."""

    @classmethod
    def of(cls, spec: DeploymentSpec, pool: Pool) -> "Origins":
        places = [index for index, each in enumerate(spec.pools) if each.name == pool.name]
        return cls(spec, places[0] if places else None)

    @property
    def pool(self) -> PoolSpec | None:
        """The pool as written."""
        return None if self.index is None else self.spec.pools[self.index]

    def path(self, *names: str) -> str:
        """JSON path of a field of `engine` or `hardware` (Python names): the pool's own where the pool sets it."""
        if self.index is not None and _says(self.pool, names):
            return f"spec.pools[{self.index}].{_json(names)}"
        return f"spec.{_json(names)}"

    def of_pool(self, *names: str) -> str:
        """JSON path of a field that only pools have, such as `context`."""
        return f"spec.pools[{self.index or 0}].{_json(names)}"


def _says(part: object, names: tuple[str, ...]) -> bool:
    for name in names:
        if not isinstance(part, Model) or name not in part.model_fields_set:
            return False
        part = getattr(part, name)
    return part is not None


def _json(names: tuple[str, ...]) -> str:
    """The fields as manifests spell them."""
    return ".".join(to_camel(name) for name in names)
