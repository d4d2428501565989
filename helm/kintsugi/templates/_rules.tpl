{{- /* What the operator may do; `kintsugi.adapters.kube.permissions` is the source, and a test compares. */ -}}

{{- /* In every namespace whose fleets it looks after. */ -}}
{{- define "kintsugi.rules.fleet" -}}
- apiGroups: [kintsugi.dev]
  resources: [deepseekv4deployments]
  verbs: [get, list, watch]
- apiGroups: [kintsugi.dev]
  resources: [deepseekv4deployments/status]
  verbs: [update]
- apiGroups: [kintsugi.dev]
  resources: [remediations]
  verbs: [get, list, watch, create, delete]
- apiGroups: [kintsugi.dev]
  resources: [remediations/status]
  verbs: [update]
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [get, list, create, update, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, patch]
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end -}}

{{- /* Of the whole cluster: which nodes have a GPU free. */ -}}
{{- define "kintsugi.rules.cluster" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [list]
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
{{- end -}}

{{- /* In its own namespace: the Lease that says who acts. */ -}}
{{- define "kintsugi.rules.own" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, update]
{{- end -}}
