#!/usr/bin/env bash
# Makes what is released: a tarball with binary, licences, manifests, man page and completions, a Debian package where
# dpkg-deb is there, and SHA256SUMS. The same commit gives the same bytes in any folder.
#
#   deploy/dist/package.sh [FOLDER]          default: target/dist
#
# For the machine's own architecture only: libvirt's headers and a linker for another one are seldom at hand. The
# container image is built the same way, natively on each.
set -euo pipefail

case ${1:-} in
-h | --help)
    sed -n '2,/^set -e/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
esac

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
cargo=${CARGO:-cargo}
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*)
    printf 'package.sh: %s is neither x86_64 nor aarch64\n' "$(uname -m)" >&2
    exit 1
    ;;
esac
if [[ ${ARCH:-$arch} != "$arch" ]]; then
    printf 'package.sh: this machine is %s: build for %s on a machine of that kind\n' "$arch" "$ARCH" >&2
    exit 1
fi
out=$(realpath -m "${1:-${CARGO_TARGET_DIR:-$repository/target}/dist}")
cd "$repository"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022

binary=$(deploy/dist/build.sh)
if readelf --section-headers --wide "$binary" | grep -q '\.debug_'; then
    printf 'package.sh: %s has debug information\n' "$binary" >&2
    exit 1
fi
version=$("$cargo" pkgid --package cloud-controller-manager | sed 's/.*[#@]//')
name=cloud-controller-manager
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Name, version and licence of each crate in the binary, and the texts that they ask to be passed on.
third_party_licences() {
    local crate version licence folder file
    printf 'Crates in this binary, each with its licence; the texts follow.\n\n'
    "$cargo" tree --locked --package cloud-controller-manager --edges normal --prefix none --format '{p}|{l}' |
        sed -n 's/^\([^ ]*\) v\([^ |]*\)\( (proc-macro)\)\{0,1\}|\(.*\)$/\1 \2 \4/p' | sort -u >"$work/crates"
    cat "$work/crates"
    while read -r crate version licence; do
        for folder in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$crate-$version"; do
            for file in "$folder"/LICEN[CS]E* "$folder"/COPYING* "$folder"/NOTICE* "$folder"/UNLICENSE*; do
                [[ -f $file ]] || continue
                printf '\n==== %s %s (%s): %s\n\n' "$crate" "$version" "$licence" "${file##*/}"
                tr -d '\r' <"$file"
            done
            break
        done
    done <"$work/crates"
}

# What `$1 [ARGUMENT]...` prints goes into the file $2, if the binary knows that.
printed() {
    local file=$1
    shift
    mkdir -p "$(dirname "$file")"
    "$binary" "$@" >"$file" 2>/dev/null || rm -f "$file"
}

stage=$work/$name-$version-linux-$arch
mkdir -p "$stage"
install -m 755 "$binary" "$stage/$name"
cp LICENSE README.md CHANGELOG.md "$stage/"
third_party_licences >"$stage/THIRD-PARTY-LICENSES.txt"
printed "$stage/man/$name.8" man
printed "$stage/completions/$name.bash" completions bash
printed "$stage/completions/_$name" completions zsh
printed "$stage/completions/$name.fish" completions fish
mkdir -p "$stage/deploy"
git ls-files -z deploy | tar --create --null --files-from=- | tar --extract --directory="$stage"
rm -rf "$stage/deploy/dist" "$stage/deploy/image"
find "$stage" -type d -empty -delete
chmod -R u=rwX,go=rX "$stage"

mkdir -p "$out"
tarball=$name-$version-linux-$arch.tar.gz
tar --create --directory="$work" --sort=name --format=gnu --mtime="@$SOURCE_DATE_EPOCH" \
    --owner=0 --group=0 --numeric-owner "${stage##*/}" | gzip --no-name --best >"$out/$tarball"
made=("$tarball")

# The Debian package: it starts nothing, for the daemon runs in pods or as its administrator likes.
if command -v dpkg-deb >/dev/null; then
    root=$work/deb
    install -D -m 755 "$binary" "$root/usr/bin/$name"
    if [[ -f $stage/man/$name.8 ]]; then
        mkdir -p "$root/usr/share/man/man8"
        gzip --no-name --best --stdout "$stage/man/$name.8" >"$root/usr/share/man/man8/$name.8.gz"
    fi
    # The file $1, where it exists, as $2.
    install_if() { [[ ! -f $1 ]] || install -D -m 644 "$1" "$2"; }
    install_if "$stage/completions/$name.bash" "$root/usr/share/bash-completion/completions/$name"
    install_if "$stage/completions/_$name" "$root/usr/share/zsh/vendor-completions/_$name"
    install_if "$stage/completions/$name.fish" "$root/usr/share/fish/vendor_completions.d/$name.fish"
    documentation=$root/usr/share/doc/$name
    install -D -m 644 LICENSE "$documentation/copyright"
    gzip --no-name --best --stdout "$stage/THIRD-PARTY-LICENSES.txt" >"$documentation/third-party-licenses.gz"
    gzip --no-name --best --stdout CHANGELOG.md >"$documentation/changelog.gz"
    mkdir -p "$documentation/examples"
    cp -R "$stage/deploy/." "$documentation/examples/"

    # The oldest glibc that has every symbol.
    glibc=$(readelf --dyn-syms --wide "$binary" | grep -o 'GLIBC_2\.[0-9.]*' | sort -Vu | tail -n 1)
    relations="Depends: libc6 (>= ${glibc#GLIBC_}), libgcc-s1, ca-certificates"
    if readelf --dynamic --wide "$binary" | grep -q 'libvirt\.so\.0'; then
        # Without the SASL modules a libvirtd that asks for a password cannot be logged in to.
        relations+=$', libvirt0 (>= 6.0)\nRecommends: libsasl2-modules'
    fi
    mkdir -p "$root/DEBIAN"
    cat >"$root/DEBIAN/control" <<CONTROL
Package: $name
Version: $version
Architecture: $arch
Section: admin
Priority: optional
$relations
Installed-Size: $(du --summarize --apparent-size --block-size=1024 "$root/usr" | cut -f 1)
Maintainer: The cloud-controller-manager authors <nobody@invalid>
Description: out-of-tree Kubernetes cloud-controller-manager
 Fills in the Nodes of a cluster whose kubelets run with
 --cloud-provider=external: provider ID, addresses, instance type, zone.
CONTROL
    chmod -R u=rwX,go=rX "$root"
    find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    package=${name}_${version}_$arch.deb
    dpkg-deb --root-owner-group -Zxz --build "$root" "$out/$package" >/dev/null
    made+=("$package")
fi

(cd "$out" && sha256sum "${made[@]}" >SHA256SUMS)
printf '%s\n' "${made[@]/#/$out/}" "$out/SHA256SUMS"
