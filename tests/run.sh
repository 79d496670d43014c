#!/usr/bin/env bash
# Runs every test: the integration tests, which mostly wait, and beside them the other binaries and the examples of the
# documentation. Then, alone, the trials that measure. The output of each comes in one piece when it has ended.
#
#   tests/run.sh [FILTER]
#
# Exit status: 0 if all passed.
set -euo pipefail
# Each job is a process group, which one signal ends.
set -m
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What cargo sets for the tests that it runs.
export CARGO=${CARGO:-cargo}
export FILTER=${1:-}
work=$(mktemp -d)
export work
stop() {
    local job
    for job in $(jobs -p); do
        kill -- "-$job" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM

# The benchmarks are left out: `make test-bench` compiles and tests them.
packages=(--workspace --exclude bench)

# For each test binary the folder of its package, its source, and its path, a line each.
binaries() {
    "$CARGO" test --locked "${packages[@]}" --no-run --message-format=json-render-diagnostics \
        | grep -E '"reason":"compiler-artifact".*"profile":\{[^}]*"test":true\}.*"executable":"' \
        | sed -E 's|.*"manifest_path":"([^"]*)/Cargo\.toml".*"src_path":"([^"]*)".*"executable":"([^"]*)".*|\1\n\2\n\3|'
}

# run FOLDER TITLE COMMAND...
run() {
    local folder=$1 title=${2#"$PWD/"} output times TIMEFORMAT='%R %U %S' status=0
    shift 2
    output=$(mktemp -p "$work")
    times=$({ time (cd "$folder" && "$@" ${FILTER:+"$FILTER"} >"$output" 2>&1); } 2>&1) || status=$?
    times=$(awk '{ printf "%.0f s, %.0f CPU seconds", $1, $2 + $3 }' <<<"$times")
    if ((status)); then
        touch "$work/failed"
        times+=", exit status $status"
    fi
    # Two outputs at a time would be read as one.
    { flock 3 && printf '\n     Ran %s: %s\n' "$title" "$times" && cat "$output"; } 3<"$work"
}
export -f run

# How many of the others run at a time. Each has as many threads as there are cores.
lanes=$((($(nproc) + 1) / 2))
# The trials that run side by side, or those that run alone.
trials() { CCM_TRIALS=$1 run "${integration[@]}"; }

list=$(binaries)
integration=() others=()
while read -r folder && read -r source && read -r binary; do
    case $source in
        */tests/integration/main.rs) integration=("$folder" "$source" "$binary") ;;
        *) others+=("$folder" "$source" "$binary") ;;
    esac
done <<<"$list"
((${#integration[@]} && ${#others[@]})) || { echo 'run.sh: cargo built no tests' >&2; exit 1; }

trials together &
together=$!
{
    printf '%s\0' "${others[@]}" | xargs -0 -n 3 -P "$lanes" bash -c 'run "$@"' _
    run . 'the examples of the documentation' "$CARGO" test --locked "${packages[@]}" --doc --no-fail-fast --
} &
beside=$!
# One that ends before it has run its tests fails the run too.
for part in "$together" "$beside"; do
    wait "$part" || touch "$work/failed"
done
trials alone

# What a machine without room or memory does to tests looks like anything else.
printf '\nmachine: %s free for temporary files, %s killed for want of memory since its start\n' \
    "$(df -h --output=avail "${TMPDIR:-/tmp}" | tail -n 1 | tr -d ' ')" "$(awk '$1 == "oom_kill" { print $2 }' /proc/vmstat)"

[[ ! -e $work/failed ]]
