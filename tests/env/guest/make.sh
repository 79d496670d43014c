#!/usr/bin/env bash
# Makes the micro guest: the kernel of Debian's cloud image and an initrd with busybox, a DHCPv6 client and the
# QEMU guest agent. Packages are only downloaded and unpacked, so no root is needed and nothing is installed.
#
#   guest/make.sh OUT WORK [ADDED]   OUT gets vmlinuz, initrd, and disk.raw, which boots both from a BIOS. WORK is a
#                                    folder for the parts. ADDED is one with what another guest has beside it: a
#                                    file `modules` with the names of kernel modules, one `packages` with lines
#                                    `PACKAGE PROGRAM` of Debian, and the folders `root` and `disk`, which are
#                                    added to the initrd and to the disk
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$1
work=$2
# a folder that does not exist where nothing is added: never the root of the file system
added=${3:-$work/nothing-added}

unavailable() {
    printf 'test-env: %s\n' "$*" >&2
    exit 3
}

# In the order in which the guest loads them; what they depend on comes by itself.
modules=(
    virtio_pci virtio_net virtio_blk virtio_console virtio_rng button evdev
    # seed disks
    isofs vfat nls_ascii nls_cp437 nls_iso8859-1 nls_utf8
)
[[ ! -e $added/modules ]] || mapfile -t -O "${#modules[@]}" modules <"$added/modules"
readonly modules
packages=(qemu-guest-agent isc-dhcp-client syslinux syslinux-common mtools dosfstools)
programs=(qemu-guest-agent/usr/sbin/qemu-ga isc-dhcp-client/sbin/dhclient)
if [[ -e $added/packages ]]; then
    while read -r package program; do
        packages+=("$package")
        programs+=("$package/$program")
    done <"$added/packages"
fi

[[ $(uname -m) == x86_64 ]] || unavailable "the micro guest is made for x86-64 only"
for program in apt-get apt-cache dpkg-deb busybox cpio depmod; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null ||
        unavailable "no $program, which the micro guest is made with: run tests/env/install.sh test (it needs Debian)"
done

mkdir "$work/packages" "$work/root"

# Downloads and unpacks the packages with apt options "$@"; sets kernel.
fetch() {
    kernel=$(apt-cache "$@" depends linux-image-cloud-amd64 2>/dev/null |
        sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
    # apt also says that its unprivileged user has no access: the folder is private on purpose
    [[ -n $kernel ]] && (cd "$work/packages" &&
        apt-get "$@" download "$kernel" "${packages[@]}" >"$work/apt.log" 2>&1)
}

# The machine's package lists may be absent or out of date. Ones of our own need no root.
own_lists=(-o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache")
if ! fetch; then
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    if ! { apt-get "${own_lists[@]}" -qq update >"$work/apt.log" 2>&1 && fetch "${own_lists[@]}"; }; then
        cat "$work/apt.log"
        unavailable "apt cannot download linux-image-cloud-amd64 ${packages[*]} (Debian has them), which the guest is made of"
    fi
fi
for package in "$work"/packages/*.deb; do
    unpacked=${package##*/}
    dpkg-deb -x "$package" "$work/${unpacked%%_*}"
done

image=$work/$kernel
version=${kernel#linux-image-}
# newer releases keep the modules below /usr
modules_root=$image
[[ -d $image/lib/modules ]] || modules_root=$image/usr
PATH=$PATH:/usr/sbin:/sbin depmod -b "$modules_root" "$version"
cp "$image/boot/vmlinuz-$version" "$out/vmlinuz"

root=$work/root
mkdir -p "$root"/{bin,sbin,dev,proc,sys,run,tmp,mnt,modules,etc/acpi/PWRF,etc/qemu,var/run,var/lib,usr/share,usr/bin,usr/sbin}
cp "$(command -v busybox)" "$root/bin/busybox"
ln -s busybox "$root/bin/sh"
install -m 755 "$here/init" "$root/sbin/guest-init"
ln -s sbin/guest-init "$root/init"
install -m 755 "$here/address" "$root/etc/address"
install -m 755 "$here/cloud-config" "$root/etc/cloud-config"
install -m 755 "$here/kubeadm" "$root/usr/bin/kubeadm"
install -m 755 "$here/power-off" "$root/etc/acpi/PWRF/00000080"
# what the guest agent runs when the host asks it for a shutdown
install -m 755 "$here/power-off" "$root/sbin/shutdown"

# Modules in an order in which each finds those it depends on, without a dependency resolver in the guest.
number=100
declare -A placed
place() {
    local path=$1 name
    name=$(basename "$path")
    [[ -z ${placed[$name]:-} ]] || return 0
    placed[$name]=1
    cp "$modules_root/lib/modules/$version/$path" "$root/modules/$number-$name"
    case $name in
    *.xz) xz -d "$root/modules/$number-$name" ;;
    *.zst) zstd -q --rm -d "$root/modules/$number-$name" ;;
    esac
    number=$((number + 1))
}
for module in "${modules[@]}"; do
    # modules.dep: "path: what it needs, nearest first"; names mix - and _
    line=$(grep -E "^[^:]*/${module//[-_]/[-_]}\.ko[^:]*:" "$modules_root/lib/modules/$version/modules.dep" | head -n 1)
    # built into the kernel
    [[ -n $line ]] || continue
    needed=()
    read -r -a needed <<<"${line#*:}"
    for ((i = ${#needed[@]} - 1; i >= 0; i--)); do
        place "${needed[i]}"
    done
    place "${line%%:*}"
done

# Dynamic programs with their libraries, taken from this machine: qemu itself needs the same ones.
for program in "${programs[@]}"; do
    source=$work/$program
    [[ -e $source ]] || source=$work/${program/\/sbin/\/usr\/sbin}
    [[ -e $source ]] || continue
    install -m 755 "$source" "$root/usr/sbin/"
    libraries=$(ldd "$source")
    if grep -q 'not found' <<<"$libraries"; then
        printf '%s\n' "$libraries" >&2
        unavailable "libraries of ${program##*/} are missing: run tests/env/install.sh test"
    fi
    while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done < <(grep -o '/[^ ]*' <<<"$libraries")
done

[[ ! -d $added/root ]] || cp -a --remove-destination "$added/root/." "$root/"
(cd "$root" && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0 | gzip -1) >"$out/initrd"

# A disk without partitions, as an image for machines. The micro guest mounts none of it.
disk=$out/disk.raw
kibibytes=32768
[[ ! -d $added/disk ]] || kibibytes=$((kibibytes + $(du -sk --apparent-size "$added/disk" | cut -f 1)))
export PATH="$work/mtools/usr/bin:$work/syslinux/usr/bin:$work/dosfstools/sbin:$work/dosfstools/usr/sbin:$PATH" MTOOLS_SKIP_CHECK=1
mkfs.fat -C -F 16 -n MICRO --invariant "$disk" "$kibibytes" >/dev/null
cat >"$work/syslinux.cfg" <<'END'
DEFAULT linux
PROMPT 0
TIMEOUT 1
LABEL linux
    KERNEL vmlinuz
    INITRD initrd
    APPEND console=ttyS0 quiet panic=1 no_timer_check
END
mcopy -i "$disk" "$out/vmlinuz" "$out/initrd" "$work/syslinux.cfg" ::
[[ ! -d $added/disk ]] || mcopy -s -i "$disk" "$added"/disk/* ::
syslinux --install "$disk"
