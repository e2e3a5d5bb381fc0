{{- define "worker.selector" -}}
app.kubernetes.io/name: delegation-worker
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
