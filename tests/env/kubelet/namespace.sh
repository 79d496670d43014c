#!/bin/sh
# Process 1 of the namespaces (mount, network, process) in which a test's kubelet and its containerd live.
#
#   namespace.sh FOLDER API_PORT SYSTEM_UUID MACHINE_ID [ADDRESS]...
#
# FOLDER/api-server.sock leads to the API server, which listens on API_PORT here too. Both ids may be empty: then
# the kubelet sees the machine's own. The addresses are those of the node; a kubelet takes none that no interface
# has.
set -eu

folder=$1
api_port=$2
system_uuid=$3
machine_id=$4
shift 4

echo 0 >/proc/sys/net/ipv6/conf/lo/accept_dad
ip link set lo up
for address; do
    ip address add "$address" dev lo
done
socat "TCP-LISTEN:$api_port,bind=127.0.0.1,reuseaddr,fork" "UNIX-CONNECT:$folder/api-server.sock" &

# Makes folder $2 in folder $1 an empty one. If no folder can be made in $1, $1 is replaced by a copy, with
# all of its other entries bound into it. Links keep their depth, which relative ones depend on.
own() {
    if [ ! -d "$1/$2" ]; then
        mkdir "$folder/moved"
        mount --rbind "$1" "$folder/moved"
        mount -t tmpfs -o mode=755 tmpfs "$1"
        for entry in "$folder"/moved/*; do
            if [ -d "$entry" ] && [ ! -L "$entry" ]; then
                mkdir "$1/${entry##*/}"
                mount --rbind "$entry" "$1/${entry##*/}"
            fi
        done
        umount --recursive "$folder/moved"
        rmdir "$folder/moved"
        mkdir "$1/$2"
    fi
    mount -t tmpfs -o mode=755 tmpfs "$1/$2"
}

# Folders that both programs write to, besides those that they are configured to use.
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/log
own /var/lib kubelet

# A kubelet changes kernel settings. These are copies that have its values already, so that the kernel's are
# not changed.
mkdir "$folder/sysctl"
while read -r name value; do
    [ -e "/proc/sys/$name" ] || continue
    copy=$folder/sysctl/$(echo "$name" | tr / -)
    echo "$value" >"$copy"
    mount --bind "$copy" "/proc/sys/$name"
done <<'END'
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END

if [ -n "$machine_id" ] && [ -e /etc/machine-id ]; then
    echo "$machine_id" >"$folder/machine-id"
    mount --bind "$folder/machine-id" /etc/machine-id
fi
if [ -n "$system_uuid" ]; then
    echo "$system_uuid" >"$folder/product_uuid"
    # A machine without DMI gets a folder for it.
    if [ ! -e /sys/class/dmi/id/product_uuid ]; then
        own /sys/class dmi
        mkdir /sys/class/dmi/id
        : >/sys/class/dmi/id/product_uuid
    fi
    mount --bind "$folder/product_uuid" /sys/class/dmi/id/product_uuid
fi

: >"$folder/prepared"
# Wait forever, and reap orphaned processes.
while :; do
    sleep infinity &
    wait $! || true
done
