//! What a user applies.

use anyhow::Result;
use serde_json::Value;
use test_env::Libvirtd;

use super::world::World;
use crate::cluster_api::workload::GREETING;

/// The words in capitals depend on the test and its peers.
const CLUSTER: &str = "
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: prod, namespace: default}
spec:
  controlPlaneEndpoint: {host: HOST, port: PORT}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: HostedControlPlane, name: prod}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: LibvirtCluster, name: prod}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: LibvirtCluster
metadata: {name: prod, namespace: default}
spec: {}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: LibvirtMachineTemplate
metadata: {name: workers, namespace: default}
spec:
  template:
    spec: MACHINE
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {name: workers, namespace: default}
spec:
  template:
    spec:
      # The file system of this image is in memory. What kubeadm and the kubelet have written is kept behind the image on the disk, so that a
      # machine that is reset is the same Node again. A distribution's disk does that, and its cloud-init joins once.
      preKubeadmCommands:
        - 'GREETING'
        - cd / && dd if=/dev/vda bs=1M skip=600 count=10 | tar -xf -
        - test -e /etc/kubernetes/kubelet.conf && echo GUEST is back && exit 0
      postKubeadmCommands:
        - tar -cf - etc/kubernetes var/lib/kubelet/pki var/lib/kubelet/*.* | dd of=/dev/vda bs=1M seek=600 && sync
      joinConfiguration:
        nodeRegistration:
          kubeletExtraArgs: [{name: cloud-provider, value: external}]
          # The first looks for the kernel's configuration and modules, which this small image lacks. The second gives the runtime two seconds
          # to answer, which an emulated processor may not make.
          ignorePreflightErrors: [SystemVerification, CRI]
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: workers, namespace: default}
spec:
  clusterName: prod
  replicas: REPLICAS
  template:
    spec:
      clusterName: prod
      version: VERSION
      bootstrap:
        configRef: {apiGroup: bootstrap.cluster.x-k8s.io, kind: KubeadmConfigTemplate, name: workers}
      infrastructureRef:
        {apiGroup: infrastructure.cluster.x-k8s.io, kind: LibvirtMachineTemplate, name: workers}
---
# It tolerates nothing. There is no pod network.
apiVersion: v1
kind: Pod
metadata: {name: waiting, namespace: default}
spec:
  hostNetwork: true
  automountServiceAccountToken: false
  # Process 1 of a container ignores SIGTERM unless it handles it.
  terminationGracePeriodSeconds: 1
  containers: [{name: sleep, image: 'localhost/sleep:1', imagePullPolicy: Never}]
";

/// The memory of a machine in MiB.
pub(super) const MEMORY: u32 = 1536;

/// The cluster with this many machines.
pub(super) fn cluster(world: &World, machines: usize) -> Result<String> {
    let port = world.control_plane.port();
    Ok(CLUSTER
        .replace("HOST,", &format!("{},", Libvirtd::GATEWAY))
        .replace("PORT}", &format!("{port}}}"))
        .replace("MACHINE", &machine(world, MEMORY)?.to_string())
        .replace("GREETING", GREETING)
        .replace("REPLICAS", &machines.to_string())
        .replace("VERSION", world.cluster.version()))
}

/// The spec of a machine with this much memory.
pub(super) fn machine(world: &World, memory_mib: u32) -> Result<Value> {
    let mut machine = world.hypervisor.machine(memory_mib)?;
    machine["vcpus"] = 2.into();
    Ok(machine)
}
