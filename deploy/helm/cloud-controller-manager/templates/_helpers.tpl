{{- define "ccm.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "ccm.selector" -}}
app.kubernetes.io/name: cloud-controller-manager
app.kubernetes.io/instance: {{ include "ccm.fullname" . }}
{{- end -}}

{{- define "ccm.podLabels" -}}
{{ include "ccm.selector" . }}
k8s-app: {{ include "ccm.fullname" . }}
{{- end -}}

{{- define "ccm.labels" -}}
{{ include "ccm.podLabels" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* The Secret with the configuration, empty where there is none. */ -}}
{{- define "ccm.secret" -}}
{{- if not .Values.existingConfigMap -}}
{{- if .Values.cloudConfig -}}
{{ default "cloud-config" .Values.existingSecret }}
{{- else -}}
{{ .Values.existingSecret }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "ccm.hasConfig" -}}
{{- if or .Values.existingConfigMap (include "ccm.secret" .) -}}yes{{- end -}}
{{- end -}}

{{- define "ccm.probe" -}}
path: {{ .path }}
port: https
scheme: HTTPS
{{- if .root.Values.hostNetwork }}
{{- /* A pod that started before its node had addresses may have none itself. */}}
host: 127.0.0.1
{{- end }}
{{- end -}}
