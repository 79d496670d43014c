#!/usr/bin/env bash
# Builds the crate of docs/tutorials/writing-a-provider.md outside of this workspace, and runs it. Uses this workspace's
# versions of dependencies and its target folder, so that little is compiled anew.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
page=$root/docs/tutorials/writing-a-provider.md
target=${CARGO_TARGET_DIR:-$root/target}
crate=$(mktemp -d)
trap 'rm -rf "$crate"' EXIT

# The first block of code whose fence begins with this word.
block() {
    awk -v fence="^\`\`\`$1" '$0 ~ fence && !found { found = inside = 1; next } /^```$/ { inside = 0 } inside' "$page"
}

mkdir "$crate/src"
block toml | sed "s|\"\.\./cloud-controller-manager/|\"$root/|" >"$crate/Cargo.toml"
block rust,no_run >"$crate/src/main.rs"
block rs >"$crate/src/tests.rs"
cp "$root/Cargo.lock" "$crate/"
printf 'node-1 10.0.0.1\nnode-2 10.0.0.2\n' >"$crate/machines.txt"

# The profile is that of the workspace: other settings would be other artifacts.
in_crate() {
    CARGO_TARGET_DIR=$target ${CARGO:-cargo} "$1" --quiet --manifest-path "$crate/Cargo.toml" \
        --config 'profile.dev.debug="line-tables-only"' \
        --config 'profile.dev.package."*".opt-level=1' --config 'profile.dev.package."*".debug=false' "${@:2}"
}

in_crate build
program=$target/debug/mycloud-controller-manager

expect() {
    if [[ $1 != *"$2"* ]]; then
        echo "outside-crate: expected $2 in:" >&2
        echo "$1" >&2
        exit 1
    fi
}

expect "$("$program" --version)" 'Kubernetes v1.4.0'
expect "$("$program" --help)" 'mycloud-controller-manager'
# There is no API server, so the check fails; the cloud is asked all the same.
report=$("$program" check --cloud-provider=mycloud --cloud-config="$crate/machines.txt" \
    --master=http://127.0.0.1:9 2>&1 || true)
expect "$report" 'mycloud answers'
expect "$("$program" check --cloud-provider=mycloud --cloud-config=/dev/null --master=http://127.0.0.1:9 2>&1 || true)" \
    'there is no machine'
expect "$(in_crate test -- --nocapture)" 'conformance of provider "mycloud": 25 rules hold, 0 do not'
echo 'outside-crate: the crate of docs/tutorials/writing-a-provider.md builds, runs and passes its test'
