"""What the checks look at: each pool with its model, its GPUs, its rendered command and its rendered pod."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kintsugi.api.effective import Pool, pools_of
from kintsugi.api.objects import DeepSeekV4Deployment
from kintsugi.api.spec import DeploymentSpec
from kintsugi.core import names
from kintsugi.core.catalog.catalog import Catalog
from kintsugi.core.catalog.entities import Gpu, Model
from kintsugi.core.catalog.version import EngineVersion
from kintsugi.core.command.argument import Argument, Command
from kintsugi.core.command.choice import Choice, choose
from kintsugi.core.command.number import whole as whole_number
from kintsugi.core.command.render import engine_command
from kintsugi.core.pod.owned import template_problems
from kintsugi.core.preflight.facts import Facts
from kintsugi.core.preflight.paths import locate
from kintsugi.core.render import pod_template, pool_labels

Json = Mapping[str, Any]
V4: Final = ("deepseek-v4", "deepseek-v4.1")
"""Families whose kernels fix block size, KV format and number formats."""


@dataclass(frozen=True, slots=True)
class PoolView:
    """One pool as its instances would be."""

    raw: Json
    """The whole object, as written."""
    spec: DeploymentSpec
    index: int
    pool: Pool
    choice: Choice
    """Model, GPU, version and recipe that its command follows."""
    image: str
    """The image written, else the default."""
    command: Command
    """Empty where the pool runs no vLLM."""
    pod: Json
    """The rendered template; empty where its `podTemplate` can't be merged."""

    @property
    def at(self) -> str:
        """Path of the pool, or of the spec where no pools are written."""
        return f"spec.pools[{self.index}]" if self.spec.pools else "spec"

    @property
    def model(self) -> Model | None:
        return self.choice.model

    @property
    def gpu(self) -> Gpu | None:
        """The kind of GPU written, else the recipe's; None where the catalog knows neither."""
        return self.choice.gpu

    @property
    def gpu_name(self) -> str | None:
        """The kind of GPU as written; None where the recipe decides."""
        return self.pool.hardware.gpu

    @property
    def gpus(self) -> int | None:
        """GPUs of an instance, all its nodes together; None where nobody says."""
        return None if self.choice.parallel.gpus is None else self.choice.parallel.total

    @property
    def version(self) -> EngineVersion | None:
        return self.choice.version

    @property
    def vllm(self) -> bool:
        """Whether vLLM serves, rather than the native runtime."""
        return self.pool.engine.runtime != "Native"

    @property
    def v4(self) -> bool:
        """Whether the model is of the V4 family, served by vLLM."""
        return self.vllm and self.model is not None and self.model.family in V4

    @property
    def nodes(self) -> int:
        """Nodes of an instance."""
        return self.pool.hardware.nodes_per_instance or 1

    def path(self, field: str) -> str:
        """Where `field` (`engine.image`) is said: the pool's own, else the deployment's, which may be missing."""
        own = f"{self.at}.{field}"
        return own if self._said(own) else f"spec.{field}"

    def says(self, field: str) -> bool:
        """Whether `field` is said for this pool at all."""
        return self._said(self.path(field))

    def _said(self, path: str) -> bool:
        location, whole = locate(self.raw, path)
        value: Any = self.raw
        for step in location:
            value = value[step]
        return whole and value is not None

    def written(self, flag: str) -> Argument | None:
        """The argument that counts for `flag`, where a person wrote it; None where the operator decides."""
        found = self.command.get(flag)
        return found if found is not None and by_a_person(found) else None

    def number(self, flag: str) -> int | None:
        """The whole number that the engine gets for `flag`; None where it gets none, or something else."""
        found = self.command.get(flag)
        return whole_number(found.value) if found else None

    def where(self, flag: str, otherwise: str = "hardware") -> str:
        """Path that says `flag`, else that of the field `otherwise`."""
        found = self.written(flag)
        return found.origin if found else self.path(otherwise)

    @property
    def container(self) -> Json:
        """The rendered engine container."""
        found = (c for c in self.containers if c.get("name") == names.ENGINE_CONTAINER)
        return next(found, {})

    @property
    def containers(self) -> tuple[Json, ...]:
        """Every rendered container that is an object."""
        return objects(self.pod_spec.get("containers"))

    @property
    def pod_spec(self) -> Json:
        return mapping(self.pod.get("spec"))

    @property
    def environment(self) -> dict[str, Json]:
        """The engine's environment by name, as rendered."""
        return {str(entry["name"]): entry for entry in objects(self.container.get("env")) if "name" in entry}

    def variable(self, name: str) -> str | None:
        """The plain value of an environment variable; None where there is none."""
        value = self.environment.get(name, {}).get("value")
        return None if value is None else str(value)

    def variable_path(self, name: str) -> str | None:
        """Where a person sets that variable, the last word first; None where nobody does."""
        for at, template in self.templates():
            for index, container in enumerate(objects(mapping(template.get("spec")).get("containers"))):
                if container.get("name") == names.ENGINE_CONTAINER:
                    for number, entry in enumerate(objects(container.get("env"))):
                        if entry.get("name") == name:
                            return f"{at}.spec.containers[{index}].env[{number}]"
        for base in dict.fromkeys((f"{self.at}.engine.env", "spec.engine.env")):
            for number, entry in enumerate(self._list(base)):
                if mapping(entry).get("name") == name:
                    return f"{base}[{number}]"
        return None

    def _list(self, path: str) -> list[Any]:
        location, whole = locate(self.raw, path)
        value: Any = self.raw
        for step in location:
            value = value[step]
        return value if whole and isinstance(value, list) else []

    def templates(self) -> Iterator[tuple[str, Json]]:
        """The `podTemplate`s laid over this pool with their paths, the one that wins first."""
        if self.spec.pools and self.spec.pools[self.index].pod_template:
            yield f"{self.at}.podTemplate", self.spec.pools[self.index].pod_template or {}
        if self.spec.pod_template:
            yield "spec.podTemplate", self.spec.pod_template

    def template_path(self, *steps: str) -> str | None:
        """Where a person's `podTemplate` says `spec.<steps>`; `engine` stands for the engine's container."""
        for at, template in self.templates():
            node: Any = mapping(template.get("spec"))
            path = f"{at}.spec"
            for step in steps:
                if step == "engine":
                    items = mapping(node).get("containers")
                    found = [
                        i
                        for i, c in enumerate(items if isinstance(items, list) else ())
                        if mapping(c).get("name") == names.ENGINE_CONTAINER
                    ]
                    if not found or not isinstance(items, list):
                        break
                    node, path = items[found[0]], f"{path}.containers[{found[0]}]"
                elif step in mapping(node):
                    node, path = node[step], f"{path}.{step}"
                else:
                    break
            else:
                return path
        return None


@dataclass(frozen=True, slots=True)
class View:
    """A whole deployment, as the checks see it."""

    raw: Json
    name: str
    spec: DeploymentSpec
    pools: tuple[PoolView, ...]
    facts: Facts
    catalog: Catalog


def view_of(deployment: DeepSeekV4Deployment, raw: Json, facts: Facts, catalog: Catalog) -> View:
    """The deployment with everything looked up and rendered that a rule may ask for."""
    spec = deployment.spec
    name = deployment.metadata.name
    pools = tuple(
        _pool_view(name, raw, spec, index, pool, catalog) for index, pool in enumerate(pools_of(spec))
    )
    return View(raw, name, spec, pools, facts, catalog)


def _pool_view(
    name: str, raw: Json, spec: DeploymentSpec, index: int, pool: Pool, catalog: Catalog
) -> PoolView:
    choice = choose(spec, pool, catalog)
    whole = not any(template_problems(template) for template in pool.pod_templates)
    return PoolView(
        raw=raw,
        spec=spec,
        index=index,
        pool=pool,
        choice=choice,
        image=pool.engine.image or catalog.default_image(choice.model, choice.gpu),
        command=engine_command(spec, pool, catalog) if pool.engine.runtime != "Native" else Command(()),
        pod=pod_template(spec, pool, pool_labels(name, pool.name), catalog) if whole else {},
    )


def by_a_person(argument: Argument) -> bool:
    """Whether a field of the object says it, rather than the operator."""
    return argument.origin.startswith("spec.")


def mapping(node: Any) -> Json:
    """`node` where it is an object, else an empty one."""
    return node if isinstance(node, Mapping) else {}


def objects(node: Any) -> tuple[Json, ...]:
    """The objects in `node` where it is a list."""
    return tuple(item for item in node if isinstance(item, Mapping)) if isinstance(node, list | tuple) else ()


def stated(argument: Argument) -> str:
    """How a field states an argument: `is 16` where it is typed, `gives --block-size 16` among free words."""
    value = " ".join(argument.values)[:80] or "no value"
    typed = "extraArgs" not in argument.origin
    return f"is {value}" if typed else f"gives {argument.flag} {value}"
