#!/usr/bin/env bash
# Runs the integration tests again and again on a busy machine, and names what failed even once.
#
#   tests/flaky.sh RUNS [FILTER]...
#
# The logs of the runs are in target/flaky/. Exit status: 0 if every run passed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

runs=$1
shift
logs=${CARGO_TARGET_DIR:-target}/flaky
mkdir -p "$logs"

stress-ng --quiet --cpu 4 --io 2 &
stress=$!
trap 'kill "$stress" 2>/dev/null || true' EXIT

failed=0
for ((run = 1; run <= runs; run++)); do
    log=$logs/$run.log
    begin=$SECONDS
    if "${CARGO:-cargo}" test --locked --workspace --test integration -- "$@" >"$log" 2>&1; then
        result=passed
    else
        result=FAILED
        failed=$((failed + 1))
    fi
    printf 'run %s of %s %s after %s s: %s\n' "$run" "$runs" "$result" "$((SECONDS - begin))" "$log"
    # the same lines that `make test` ends with, and what the machine was too late for
    awk -f tests/summary.awk "$log" | sed -n "s/^failed: /run $run: &/p"
    sed -n "s/^NOT JUDGED /run $run: &/p" "$log" | sort -u
done
printf '%s of %s runs failed\n' "$failed" "$runs"
[[ $failed -eq 0 ]]
