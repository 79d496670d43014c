#!/usr/bin/env bash
# Builds the container image from what deploy/image/bases says.
#
#   deploy/image/build.sh [--release] IMAGE [ARGUMENT OF docker build]...
#
# --release is for images that others run: it refuses base images without a digest, packages of whatever day it is, and
# a tree with changes that are not committed. Variables: DOCKER (docker), FEATURES as in the Containerfile, BASES.
set -euo pipefail

usage() { sed -n '2,/^set -e/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }

release=
case ${1:-} in
-h | --help)
    usage
    exit 0
    ;;
--release)
    release=yes
    shift
    ;;
esac
image=${1:-}
if [[ -z $image || $image == -* ]]; then
    usage >&2
    exit 1
fi
shift

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
bases=${BASES:-$repository/deploy/image/bases}
value() { sed -n "s/^$1=//p" "$bases" | tail -n 1; }
debian=$(value DEBIAN)
rust=$(value RUST)
snapshot=$(value SNAPSHOT)

faults=()
for base in "DEBIAN=$debian" "RUST=$rust"; do
    if [[ $base == *= ]]; then
        printf 'build.sh: %s: %s is missing\n' "$bases" "${base%=}" >&2
        exit 1
    fi
    [[ $base =~ @sha256:[0-9a-f]{64}$ ]] || faults+=("$base has no digest: run deploy/image/pin.sh")
done
if [[ ! $snapshot =~ ^[0-9]{8}T[0-9]{6}Z$ ]]; then
    if [[ -n $snapshot ]]; then
        printf 'build.sh: %s: SNAPSHOT=%s is no instant as in 20260131T120000Z\n' "$bases" "$snapshot" >&2
        exit 1
    fi
    faults+=("SNAPSHOT= pins no packages: run deploy/image/pin.sh")
fi
if [[ -n $release ]] && [[ -n $(git -C "$repository" status --porcelain 2>/dev/null || echo unknown) ]]; then
    faults+=("the tree has changes that are not committed")
fi
if [[ -n $release && ${#faults[@]} -gt 0 ]]; then
    printf 'build.sh: no release: %s\n' "${faults[@]}" >&2
    exit 1
fi

epoch=$(git -C "$repository" log -1 --format=%ct 2>/dev/null || echo 0)
exec "${DOCKER:-docker}" build --file "$repository/deploy/image/Containerfile" --tag "$image" \
    --build-arg "DEBIAN=$debian" --build-arg "RUST=$rust" --build-arg "SNAPSHOT=$snapshot" \
    --build-arg "SOURCE_DATE_EPOCH=$epoch" ${FEATURES:+--build-arg "FEATURES=$FEATURES"} "$@" "$repository"
