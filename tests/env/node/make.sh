#!/usr/bin/env bash
# Makes the image of a machine that can become a Node: the micro guest with containerd, runc, a kubelet and kubeadm, which
# runs the user data of Cluster API's kubeadm bootstrap manager. It has one container image, `localhost/sleep:1`.
#
#   node/make.sh OUT WORK PROGRAM...   OUT gets disk.raw. WORK is a folder for the parts
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$1
work=$2
shift 2

added=$work/added
mkdir -p "$added/root/etc" "$added/disk/bin" "$work/guest" "$work/parts"
install -m 755 "$here/init" "$added/root/init"
install -m 755 "$here/services" "$added/root/etc/services"
cp "$@" "$added/disk/bin/"
printf '%s\n' overlay br_netfilter >"$added/modules"
echo "runc usr/sbin/runc" >"$added/packages"

# A container image as `docker save` writes it: busybox, which sleeps. It is that of the pods' sandboxes too.
image=$work/image
mkdir -p "$image/root/bin"
cp "$(command -v busybox)" "$image/root/bin/busybox"
ln -s busybox "$image/root/bin/sleep"
tar -C "$image/root" --owner=0 --group=0 --sort=name --mtime=@0 -cf "$image/layer.tar" bin
cat >"$image/config.json" <<END
{"architecture": "amd64", "os": "linux", "config": {"Entrypoint": ["/bin/sleep", "1000000000"]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$(sha256sum "$image/layer.tar" | cut -d ' ' -f 1)"]}}
END
echo '[{"Config": "config.json", "RepoTags": ["localhost/sleep:1"], "Layers": ["layer.tar"]}]' >"$image/manifest.json"
tar -C "$image" -cf "$added/disk/sleep.tar" manifest.json config.json layer.tar

"$here/../guest/make.sh" "$work/guest" "$work/parts" "$added"
mv "$work/guest/disk.raw" "$out/"
