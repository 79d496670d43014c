#!/bin/sh
# Installs packages in the image's build stages, from Debian's archive as it was at an instant, if one is given.
#
#   apt.sh SNAPSHOT PACKAGE...
set -eu

snapshot=$1
shift

if [ -n "$snapshot" ]; then
    # Plain HTTP: there are no certificates yet, and apt checks the archive's signatures in any case.
    archive=http://snapshot.debian.org/archive
    # shellcheck source=/dev/null
    . /etc/os-release
    rm -f /etc/apt/sources.list.d/debian.sources
    cat >/etc/apt/sources.list <<END
deb [check-valid-until=no] $archive/debian/$snapshot $VERSION_CODENAME main
deb [check-valid-until=no] $archive/debian/$snapshot $VERSION_CODENAME-updates main
deb [check-valid-until=no] $archive/debian-security/$snapshot $VERSION_CODENAME-security main
END
fi
apt-get -o Acquire::Retries=5 update
apt-get -o Acquire::Retries=5 install --yes --no-install-recommends "$@"
rm -rf /var/lib/apt/lists/*
