#!/usr/bin/env bash
# Installs through apt the Debian packages that this workspace needs and that are missing.
#
#   tests/env/install.sh [build|test|stress]
#
#   build  what compiling the workspace needs
#   test   that, and everything the real peers of the tests need (the default)
#   stress what keeps the machine busy while tests run
#
# Quick when nothing is missing. Uses sudo when not root. Starts no service: the tests run a libvirtd of
# their own and never the system's.
set -euo pipefail

readonly build_packages=(ca-certificates curl gcc libc6-dev libvirt-dev make pkg-config)
readonly test_packages=(
    # the host of the virtual machines
    libvirt-daemon-system libvirt-clients qemu-system-x86 qemu-utils dnsmasq-base
    # network, mount and process namespaces, and the relays out of them; kernel modules of the guest
    iproute2 util-linux procps socat kmod
    # the rules of kube-proxy
    nftables
    # the parts of the guest
    busybox-static cpio gzip
    # keys of service accounts
    openssl
    # a wall clock that jumps
    libfaketime
    # to get a Go that is new enough, if there is none
    python3-venv
)

case ${1:-test} in
build) wanted=("${build_packages[@]}") ;;
test) wanted=("${build_packages[@]}" "${test_packages[@]}") ;;
stress) wanted=(stress-ng) ;;
-h | --help)
    sed -n '2,/^set -e/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
*)
    printf 'install.sh: unknown set %s; known: build test stress\n' "$1" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    printf 'install.sh: this machine has no apt. Install what these Debian packages hold:\n  %s\n' \
        "${wanted[*]}" >&2
    exit 3
fi

installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p')
missing=()
for package in "${wanted[@]}"; do
    grep -qxF "$package" <<<"$installed" || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
    exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
        printf 'install.sh: not root and no sudo. As root: apt-get install --no-install-recommends %s\n' \
            "${missing[*]}" >&2
        exit 3
    fi
    as_root=(sudo)
fi

# Debian starts a service when its package is installed, unless this file forbids it. A file that exists
# already is left as it is.
readonly policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
fi

printf 'install.sh: installing %s\n' "${missing[*]}" >&2
apt_install=(env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends)
# Package lists may be absent (fresh containers) or out of date, so they are refreshed only if the first try
# fails.
"${as_root[@]}" "${apt_install[@]}" "${missing[@]}" >/dev/null 2>&1 || {
    "${as_root[@]}" apt-get update --quiet >/dev/null
    "${as_root[@]}" "${apt_install[@]}" "${missing[@]}" >/dev/null
}
