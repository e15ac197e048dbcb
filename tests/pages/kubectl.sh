#!/bin/bash
# `kubectl` where there is no cluster, for the lines of a page. The real one makes ConfigMaps and Secrets, and reads the
# manifests. A pod is a unit of systemd, with the pod's user, variables and volumes, behind a read-only root, in the
# network of this machine, which is the image too.
set -euo pipefail
real=/usr/bin/kubectl cluster=/run/cluster
manifests=$cluster/manifests.yaml
as_user=(setpriv --reuid 10001 --regid 0 --groups 10001 --no-new-privs --inh-caps=-all --bounding-set=-all)

read -rd '' POD <<'END' || true
{{define "pod"}}{{range .containers}}{{range .env}}--setenv={{.name}}={{.value}}
{{end}}{{range $mount := .volumeMounts}}{{range $.volumes}}{{if eq .name $mount.name -}}
{{if .configMap}}--property=BindReadOnlyPaths=/run/cluster/configmap/{{.configMap.name}}:{{$mount.mountPath}}
{{else if .secret}}--property=BindReadOnlyPaths=/run/cluster/secret/{{.secret.secretName}}:{{$mount.mountPath}}
{{else if .persistentVolumeClaim}}--property=BindPaths=/run/cluster/claim/{{.persistentVolumeClaim.claimName}}:{{$mount.mountPath}}
--property=ReadWritePaths={{$mount.mountPath}}
{{else}}--property=TemporaryFileSystem={{$mount.mountPath}}:mode=1777
--property=ReadWritePaths={{$mount.mountPath}}
{{end}}{{end}}{{end}}{{end}}--
{{range .command}}{{.}}
{{end}}{{range .args}}{{.}}
{{end}}{{end}}{{end -}}
END

shown() { # TEMPLATE: of each manifest, without a server
  "$real" label --local --dry-run=client -f $manifests typed=yes -o go-template="$POD$1"
}

run() { # UNIT MANIFEST FIELDS OPTION…: the pod in these fields of a manifest
  local unit=$1 name=$2 fields=$3 lines at
  shift 3
  mapfile -t lines < <(shown "{{if eq .metadata.name \"$name\"}}{{with $fields}}{{template \"pod\" .}}{{end}}{{end}}")
  for at in "${!lines[@]}"; do [ "${lines[at]}" != -- ] || break; done
  systemd-run --quiet --unit="$unit" --property=ProtectSystem=strict --setenv=PATH=/opt/dr-ctl/bin:/usr/bin:/bin \
    "$@" "${lines[@]:0:at}" -- "${as_user[@]}" "${lines[@]:at+1}"
}

case "$*" in
"create configmap "* | "create secret generic "*)
  kind=$2 name=${*:3:1}
  [ "$kind" = configmap ] || name=$4
  mkdir -p $cluster/"$kind"/"$name"
  "$real" "$@" --dry-run=client -o go-template='{{range $key, $value := .data}}{{$key}}{{"\n"}}{{end}}' |
    while read -r key; do
      decoded=$([ "$kind" = configmap ] && echo . || echo '. | base64decode')
      "$real" "$@" --dry-run=client -o go-template="{{with index .data \"$key\"}}{{$decoded}}{{end}}" \
        >$cluster/"$kind"/"$name"/"$key"
    done
  [ "$kind" = configmap ] || { chgrp -R 10001 $cluster/secret && chmod -R u=rX,g=rX,o= $cluster/secret/*; }
  ;;
"apply -f "*)
  cp "$3" $manifests
  mkdir -p /etc/dr-ctl /run/secrets/dr-ctl /var/lib/dr-ctl
  shown '{{if eq .kind "PersistentVolumeClaim"}}{{.metadata.name}}{{"\n"}}{{end}}' |
    while read -r claim; do install -d -m 2770 -g 10001 $cluster/claim/"$claim"; done
  for name in $(shown '{{if eq .kind "Deployment"}}{{.metadata.name}}{{"\n"}}{{end}}'); do
    run pod-"$name" "$name" .spec.template.spec
  done
  ;;
"rollout status deploy/"*)
  for probe in $(shown '{{if eq .kind "Deployment"}}{{with index .spec.template.spec.containers 0}}{{.livenessProbe.httpGet.path}} {{.readinessProbe.httpGet.path}}{{end}}{{end}}'); do
    curl --fail --silent --show-error --retry 60 --retry-delay 1 --retry-connrefused http://127.0.0.1:9464"$probe"
  done
  ;;
"exec deploy/"*" -- "*)
  pid=$(systemctl show --property=MainPID --value pod-"${2#deploy/}")
  mapfile -d '' -t variables </proc/"$pid"/environ
  exec nsenter --target="$pid" --mount --root --wd="/proc/$pid/root" env -i "${variables[@]}" "${as_user[@]}" "${@:4}"
  ;;
"create job "*" --from=cronjob/"*)
  run job-"$3" "${4#--from=cronjob/}" .spec.jobTemplate.spec.template.spec --property=RemainAfterExit=yes
  ;;
"wait job/"*" --for=condition=complete "*)
  unit=job-${2#job/}
  until [ "$(systemctl show --property=SubState --value "$unit")" != running ]; do sleep 0.2; done
  [ "$(systemctl show --property=Result --value "$unit")" = success ]
  ;;
"logs job/"*) journalctl --unit=job-"${2#job/}" --output=cat ;;
*) echo "the page's test knows no \`kubectl $*\`" >&2 && exit 64 ;;
esac
