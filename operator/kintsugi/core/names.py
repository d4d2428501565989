"""Every name that the operator writes on, or reads from, objects of a cluster: labels, annotations, managers."""

from typing import Final

GROUP: Final = "kintsugi.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
DEPLOYMENT_KIND: Final = "DeepSeekV4Deployment"
DEPLOYMENT_PLURAL: Final = "deepseekv4deployments"
REMEDIATION_KIND: Final = "Remediation"
REMEDIATION_PLURAL: Final = "remediations"

MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "kintsugi"
NAME_LABEL: Final = "app.kubernetes.io/name"

DEPLOYMENT_LABEL: Final = "kintsugi.dev/deployment"
"""Name of the DeepSeekV4Deployment that an object belongs to."""
POOL_LABEL: Final = "kintsugi.dev/pool"
REVISION_LABEL: Final = "kintsugi.dev/revision"
ROTATION_LABEL: Final = "kintsugi.dev/rotation"
"""Selected by Services, PodDisruptionBudgets and `/scale` (design §3)."""
ROTATION_IN: Final = "in"
ROTATION_OUT: Final = "out"
MEMBER_LABEL: Final = "kintsugi.dev/member"
"""Selected by the ReplicaSet; removed from a released pod (design §3)."""
MEMBER: Final = "true"

ATTEMPT_ANNOTATION: Final = "kintsugi.dev/attempt"
"""Id of the remediation attempt that last wrote to the object."""
RETIRING_SINCE_ANNOTATION: Final = "kintsugi.dev/retiring-since"
PAUSE_ANNOTATION_PREFIX: Final = "kintsugi.dev/pause."
"""Followed by the name of the reason: GitOps would undo a pause written to the spec."""
LINEAGE_ANNOTATION: Final = "kintsugi.dev/lineage"
"""UID of the first pod of the line that a replacement continues."""
DELETION_COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Kubernetes' own: the ReplicaSet controller ends the cheapest of equally ready pods first."""

ENGINE_CONTAINER: Final = "engine"
ENGINE_PORT: Final = 8000
GPU_RESOURCE: Final = "nvidia.com/gpu"
AMD_GPU_RESOURCE: Final = "amd.com/gpu"

FIELD_MANAGER: Final = "kintsugi"
"""Field manager of every write, and the product in the User-Agent, so that audit logs read well."""
