{{- define "disque.name" -}}
{{- if contains "disque" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-disque" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "disque.nodes" -}}
{{ include "disque.name" . }}-nodes
{{- end }}

{{- define "disque.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "disque.selector" -}}
app.kubernetes.io/name: disque
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "disque.labels" -}}
{{ include "disque.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The domain of the pods' names. */ -}}
{{- define "disque.domain" -}}
{{ include "disque.nodes" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{- /* The first three pods at most: the list stays the same when the cluster grows, so no pod restarts for it. */ -}}
{{- define "disque.seeds" -}}
{{- $found := list -}}
{{- range until (min (int .Values.replicas) 3 | int) -}}
{{- $found = append $found (printf "%s-%d.%s:7711" (include "disque.name" $) . (include "disque.domain" $)) -}}
{{- end -}}
{{- join " " $found -}}
{{- end }}

{{- define "disque.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "disque.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "disque.password" -}}
valueFrom:
  secretKeyRef:
    name: {{ .Values.auth.secret }}
    key: password
{{- end }}
