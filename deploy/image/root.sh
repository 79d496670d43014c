#!/bin/sh
# Makes the root folder of the image: the binary, the shared libraries that it and libvirt's client load, certificates,
# one user. Runs in Debian, as root.
#
#   root.sh FEATURES BINARY FOLDER [SNAPSHOT]
#
# Packages come through /apt.sh.
set -eu

features=$1
binary=$2
out=$3

libvirt=
case ",$features," in
*,libvirt,*) libvirt="libvirt0 libsasl2-modules" ;;
esac
# shellcheck disable=SC2086 # several packages, or none
/apt.sh "${4:-}" ca-certificates $libvirt

mkdir -p "$out/usr/local/bin" "$out/etc/ssl/certs" "$out/tmp"
chmod 1777 "$out/tmp"
# As in Debian: /bin, /lib and the like are links into /usr.
for folder in bin lib lib64 sbin; do
    if [ -L "/$folder" ]; then
        mkdir -p "$out/usr/$folder"
        ln -s "usr/$folder" "$out/$folder"
    fi
done
install -m 755 "$binary" "$out/usr/local/bin/cloud-controller-manager"

# A library, with the links that lead to it, in its own place.
copy() {
    path=$1
    while [ -L "$path" ]; do
        mkdir -p "$out$(dirname "$path")"
        cp -P "$path" "$out$path"
        target=$(readlink "$path")
        case $target in
        /*) path=$target ;;
        *) path=$(dirname "$path")/$target ;;
        esac
    done
    mkdir -p "$out$(dirname "$path")"
    cp "$path" "$out$path"
}

ldd "$binary" | sed -n 's/.* => \(\/[^ ]*\).*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*/\1/p' | sort -u |
    while read -r library; do
        copy "$(readlink -f "$(dirname "$library")")/$(basename "$library")"
    done
# The loader's own name is fixed in the binary.
for loader in /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1; do
    [ ! -e "$loader" ] || copy "$(readlink -f "$(dirname "$loader")")/$(basename "$loader")"
done
# Names of hosts are resolved by libraries that glibc loads when it needs them.
for library in libnss_files.so.2 libnss_dns.so.2 libresolv.so.2; do
    found=$(find /usr/lib -name "$library" | head -n 1)
    [ -z "$found" ] || copy "$found"
done

case ",$features," in
*,libvirt,*)
    # Mechanisms of SASL are loaded at run time too.
    for folder in /usr/lib/*/sasl2; do
        [ ! -d "$folder" ] || for library in "$folder"/*.so*; do copy "$library"; done
    done
    ;;
esac

cp /etc/ssl/certs/ca-certificates.crt "$out/etc/ssl/certs/"
printf 'hosts: files dns\n' >"$out/etc/nsswitch.conf"
printf 'root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n' >"$out/etc/passwd"
printf 'root:x:0:\nnonroot:x:65532:\n' >"$out/etc/group"

# Same content, same layer.
find "$out" -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH:-0}" {} +
