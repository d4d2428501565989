{{- /* What the operator may do; `kintsugi.adapters.kube.permissions` is the source, and a test compares. */ -}}

{{- /* In every namespace whose fleets it looks after. */ -}}
{{- define "kintsugi.rules.fleet" -}}
- apiGroups: [kintsugi.dev]  # what users want; never written
  resources: [deepseekv4deployments]
  verbs: [get, list, watch]
- apiGroups: [kintsugi.dev]  # verdicts and reservations
  resources: [deepseekv4deployments/status]
  verbs: [update]
- apiGroups: [kintsugi.dev]  # one object per attempt, the oldest removed
  resources: [remediations]
  verbs: [get, list, create, delete]
- apiGroups: [kintsugi.dev]  # progress of attempts
  resources: [remediations/status]
  verbs: [update]
- apiGroups: [apps]  # one per pool and revision: made, scaled, told to avoid nodes, removed
  resources: [replicasets]
  verbs: [list, create, patch, delete]
- apiGroups: [""]  # one per pool, applied
  resources: [services]
  verbs: [list, create, patch, delete]
- apiGroups: [policy]  # one per pool, applied
  resources: [poddisruptionbudgets]
  verbs: [list, create, patch, delete]
- apiGroups: [""]  # whether a replacement may be made
  resources: [resourcequotas]
  verbs: [list]
- apiGroups: [""]  # instances: seen, withdrawn, released
  resources: [pods]
  verbs: [list, patch]
- apiGroups: [""]  # the only way a pod is removed
  resources: [pods/eviction]
  verbs: [create]
- apiGroups: [""]  # last lines for the black box, and the first error of a start that failed
  resources: [pods/log]
  verbs: [get]
- apiGroups: [""]  # the engines' API key
  resources: [secrets]
  verbs: [get]
- apiGroups: [""]  # one per deployment: what was learned of its engines, for the next start of the operator
  resources: [configmaps]
  verbs: [get, create, patch]
- apiGroups: [""]  # transitions, for people; what the kubelet says of a pod that does not start
  resources: [events]
  verbs: [list, create]
{{- end -}}

{{- /* Of the whole cluster: which nodes have a GPU free. */ -}}
{{- define "kintsugi.rules.cluster" -}}
- apiGroups: [""]  # GPUs free, nodes to avoid
  resources: [nodes]
  verbs: [list]
- apiGroups: [""]  # GPUs held by others
  resources: [pods]
  verbs: [list]
{{- end -}}

{{- /* Of the whole cluster, where it may: nodes that instances were moved away from. */ -}}
{{- define "kintsugi.rules.nodes" -}}
- apiGroups: [""]  # nodes with strikes: cordoned or tainted, and back
  resources: [nodes]
  verbs: [patch]
{{- end -}}

{{- /* In its own namespace: the Lease that says who acts. */ -}}
{{- define "kintsugi.rules.own" -}}
- apiGroups: [coordination.k8s.io]  # one leader among replicas
  resources: [leases]
  verbs: [get, create, update]
{{- end -}}

{{- /* In its own namespace: the Secret with the webhook's certificate. */ -}}
{{- define "kintsugi.rules.webhook" -}}
- apiGroups: [""]  # the webhook's certificate: what is made has no name yet
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]  # the webhook's certificate
  resources: [secrets]
  resourceNames: [{{ include "kintsugi.webhookName" . }}]
  verbs: [get, update]
{{- end -}}

{{- /* Of the whole cluster: the one webhook configuration of this release. */ -}}
{{- define "kintsugi.rules.webhook-cluster" -}}
- apiGroups: [admissionregistration.k8s.io]  # by which authority the API server knows the webhook
  resources: [validatingwebhookconfigurations]
  resourceNames: [{{ include "kintsugi.webhookName" . }}]
  verbs: [get, patch]
{{- end -}}
