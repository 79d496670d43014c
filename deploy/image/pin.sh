#!/usr/bin/env bash
# Looks up the digests of the base images at their registries, and writes them into deploy/image/bases with the instant
# of now for Debian's archive. Read what changed (git diff), build, test, commit.
#
#   deploy/image/pin.sh
#
# It needs skopeo, crane or docker with buildx. The digest is that of the index of all architectures, so amd64 and arm64
# are built from the same one. BASES names another file.
set -euo pipefail

case ${1:-} in
-h | --help)
    sed -n '2,/^set -e/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
esac

folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
bases=${BASES:-$folder/bases}

# Prints the digest of an image, given with its tag.
digest() {
    if command -v skopeo >/dev/null; then
        skopeo inspect --raw "docker://$1" | sha256sum | sed 's/^\([0-9a-f]*\) .*/sha256:\1/'
    elif command -v crane >/dev/null; then
        crane digest "$1"
    elif docker buildx version >/dev/null 2>&1; then
        docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$1"
    else
        printf 'pin.sh: skopeo, crane or docker with buildx is needed to look up digests\n' >&2
        return 1
    fi
}

new=$(mktemp "$bases.XXXXXX")
trap 'rm -f "$new"' EXIT
while IFS= read -r line || [[ -n $line ]]; do
    case $line in
    DEBIAN=* | RUST=*)
        key=${line%%=*}
        image=${line#*=}
        image=${image%%@*}
        found=$(digest "$image")
        if [[ ! $found =~ ^sha256:[0-9a-f]{64}$ ]]; then
            printf 'pin.sh: the registry gives no digest for %s: %s\n' "$image" "${found:-nothing}" >&2
            exit 1
        fi
        printf '%s=%s@%s\n' "$key" "$image" "$found"
        ;;
    SNAPSHOT=*) printf 'SNAPSHOT=%s\n' "$(date -u +%Y%m%dT%H%M%SZ)" ;;
    *) printf '%s\n' "$line" ;;
    esac
done <"$bases" >"$new"
chmod 644 "$new"
mv "$new" "$bases"
grep -v '^#' "$bases"
