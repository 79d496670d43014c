#!/bin/sh
# Process 1 of the namespaces (mount, network, process) in which a test's libvirtd, its dnsmasq and its
# virtual machines live. Folder $1 holds what libvirtd keeps; nothing outside of it is written.
set -eu

folder=$1

# A fresh /sys shows this network namespace's devices and has no control groups, so libvirtd makes none. The
# old one is unmounted, since libvirtd looks for control groups in the list of mounts, including hidden ones.
umount --recursive /sys
mount -t sysfs sysfs /sys
# No system bus either: libvirtd would register machines with the system's machine manager.
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/libvirt
for part in lib cache log; do
    mount --bind "$folder/$part" "/var/$part/libvirt"
done
mount --bind "$folder/etc" /etc/libvirt

# Addresses are usable at once: there is no other machine in this network to conflict with.
echo 0 >/proc/sys/net/ipv6/conf/all/accept_dad
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
ip link set lo up

: >"$folder/prepared"
# Wait forever, and reap orphaned daemons.
while :; do
    sleep infinity &
    wait $! || true
done
