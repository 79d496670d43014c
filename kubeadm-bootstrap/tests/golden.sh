#!/usr/bin/env bash
# Writes golden/ anew: what Cluster API's own controller makes of the cases. Needs Go, and the modules that oracle/go.mod names.
# Their version is that of tests/env/cluster-api: a test compares the two.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
(cd oracle && CGO_ENABLED=0 go build -trimpath -o "$out/oracle" .)
mkdir "$out/golden"
cases=()
for file in cases/*.yaml; do
    [[ $file == cases/certificates.yaml ]] || cases+=("$file")
done
"$out/oracle" -out "$out/golden" -certificates cases/certificates.yaml "${cases[@]}"
rm -rf golden
mv "$out/golden" golden
