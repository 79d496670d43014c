#!/usr/bin/env bash
# Prints what changed for operators between two versions of the Go framework, k8s.io/cloud-provider: flags, feature
# gates, component configuration (/configz) and metrics.
#
#   tests/env/upstream/changes.sh OLD NEW        such as 0.36.3 0.37.2
#   tests/env/upstream/changes.sh VERSION        everything that this version has
#
# A line is removed (-) or added (+); its fields are: kind, name, property, value. The modules come from the Go module
# proxy. What was read of a version is kept in the cache folder, .cache/ or CCM_TEST_CACHE.
#
# Exit status: 0 nothing changed, or one version was printed; 1 something changed; 2 a mistake or a fault.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${CCM_TEST_CACHE:-$(cd "$here/../../.." && pwd)/.cache}
readonly here cache

fail() {
    printf 'changes.sh: %s\n' "$*" >&2
    exit 2
}

# The version $1 in the form that modules use.
module_version() {
    local version=v${1#v}
    # Kubernetes v1.X is made of modules v0.X
    version=${version/#v1./v0.}
    [[ $version =~ ^v0\.[0-9]+\.[0-9]+(-[a-z0-9.]+)?$ ]] || fail "$1 is no version such as 0.37.2"
    printf '%s\n' "$version"
}

# Whether the modules in this folder are those of version $1.
has_version() {
    local resolved
    resolved=$(go list -m -f '{{.Version}}' k8s.io/cloud-provider k8s.io/apiserver k8s.io/component-base | sort -u) ||
        return
    if [[ $resolved != "$1" ]]; then
        printf 'asked for %s, resolved were: %s\n' "$1" "$resolved"
        return 1
    fi
}

# The file with what version $1 has; written if it is not there.
dump_of() {
    local version=$1 file work
    file=$cache/upstream-$version-$(sha256sum "$here/dump.go" | cut -c1-16).tsv
    if [[ ! -f $file ]]; then
        work=$(mktemp -d)
        # shellcheck disable=SC2064 # the folder as it is called now
        trap "rm -rf '$work'" EXIT
        cp "$here/dump.go" "$work/"
        # Joined by &&, since `set -e` has no effect before ||. The resolved version is checked too: another
        # module may want a later one. No `go mod tidy`: it wants what the tests of all modules import.
        (
            cd "$work" &&
                export GOWORK=off GOFLAGS=-mod=mod &&
                go mod init upstream &&
                go get "k8s.io/cloud-provider@$version" "k8s.io/apiserver@$version" \
                    "k8s.io/component-base@$version" &&
                has_version "$version" &&
                # no linked version: gates are those of the version that the modules are made for
                go run . >dump.tsv
        ) >"$work/log" 2>&1 || {
            cat "$work/log" >&2
            fail "$version could not be read"
        }
        mkdir -p "$cache"
        mv "$work/dump.tsv" "$file"
    fi
    printf '%s\n' "$file"
}

[[ $# -eq 1 || $# -eq 2 ]] || {
    sed -n '2,/^set -e/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
    exit 2
}
command -v go >/dev/null || fail "there is no Go on PATH"
versions=()
for version in "$@"; do
    versions+=("$(module_version "$version")")
done
first=$(dump_of "${versions[0]}")
if [[ $# -eq 1 ]]; then
    cat "$first"
    exit 0
fi
second=$(dump_of "${versions[1]}")
if cmp --silent "$first" "$second"; then
    exit 0
fi
# one property after the other, and of each the old value first
LC_ALL=C comm -3 --output-delimiter=$'\x01' "$first" "$second" |
    sed -e 's/^\x01/+ /; t' -e 's/^/- /' |
    LC_ALL=C sort --field-separator=$'\t' --key=1.3,1 --key=2,2 --key=3,3 --key=1.1,1.1r
exit 1
