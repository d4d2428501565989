"""What the operator reads from its environment, once, at start."""

import os
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class SettingsInvalid(ValueError):
    """A setting can't be read; the message names the variable."""


class Settings(BaseModel):
    """The operator's own settings. Anything that a user tunes per fleet is in the DeepSeekV4Deployment instead."""

    model_config = ConfigDict(frozen=True)

    watch_namespaces: tuple[str, ...] = ()
    """Namespaces to watch; empty = all."""
    namespace: str = "default"
    """The operator's own namespace, where its Lease lies."""
    pod_name: str = "kintsugi"
    """Identity of this process in the Lease and in Events."""
    metrics_port: int = Field(default=8080, ge=0, le=65535)
    """Port of `/metrics` and `/healthz`; 0 picks a free one."""
    webhook_name: str = ""
    """Name of the webhook's Service, Secret and ValidatingWebhookConfiguration; empty = no webhook."""
    webhook_port: int = Field(default=9443, ge=0, le=65535)
    """Port on which the API server asks; 0 picks a free one."""
    catalog: str = ""
    """Path of a YAML file with models, GPUs and recipes of your own, laid over the shipped catalog; empty = none."""
    prometheus_url: str = Field(default="", pattern="^(https?://.+)?$")
    """The Prometheus server for fleets that name none in `spec.monitoring.prometheus.url`; empty = none."""
    prometheus_token_file: str = ""
    """Path of a bearer token for that server, and for no other; read anew for each question."""
    image: str = ""
    """The operator's own image, from which engines get the telemetry (`engine.telemetry: Auto`); empty = they don't."""
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")
    leader_election: bool = True
    """Act only while holding the Lease, so that two replicas are safe."""
    lease_name: str = "kintsugi"
    max_passes: int = Field(default=32, ge=1)
    """Passes at the same time."""
    relist_seconds: float = Field(default=30.0, gt=0)
    """A full list of deployments this often, in case the watch died in silence (S28)."""
    stuck_seconds: float = Field(default=180.0, gt=0)
    """Liveness fails when no pass has completed for this long though there are deployments."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "Settings":
        """Settings from `KINTSUGI_*` variables; raises SettingsInvalid naming the variable."""
        given = os.environ if environment is None else environment
        said: dict[str, object] = {}
        for name in cls.model_fields:
            text = given.get(f"KINTSUGI_{name.upper()}")
            if text is None or text == "":
                continue
            listed = name == "watch_namespaces"
            said[name] = tuple(part.strip() for part in text.split(",") if part.strip()) if listed else text
        try:
            return cls.model_validate(said)
        except ValidationError as error:
            found = error.errors(include_url=False)[0]
            raise SettingsInvalid(f"KINTSUGI_{str(found['loc'][0]).upper()}: {found['msg']}") from error
