//! Builds, starts and stops the real peers of the tests: a Kubernetes control plane, a kubelet, a Go
//! cloud-controller-manager, libvirtd and small virtual machines, a vCenter simulator, vSphere's own
//! cloud-controller-manager, Cluster API Provider vSphere, kube-vip's allocator, kube-proxies in network namespaces, Cluster API's managers, and
//! what kubeadm and a controller manager add to a cluster that machines join.
//!
//! Every peer has a folder of its own in the system's temporary folder, listens on loopback or in a network
//! namespace of its own, and ends when the value that started it is dropped. If the test process dies without
//! dropping its values (Ctrl-C, `SIGKILL`, a panic while unwinding), the kernel ends all peers.
//!
//! There are two kinds of errors at the start: [`StartError::Unavailable`] if the machine cannot run a peer,
//! with advice on what to do, and [`StartError::Failed`] if a peer should run but does not.
//!
//! Environment variables: `CCM_TEST_CACHE` (the folder for built peers), `KUBEBUILDER_ASSETS` (a folder with
//! `etcd`, `kube-apiserver` and `kubectl` to use instead of building them), `CCM_TEST_KEEP=1` (do not remove
//! the folders with logs and data).

mod audit;
mod build;
mod capv;
mod cluster_api;
mod control_plane;
mod cpi;
mod error;
mod framework;
mod guest;
mod http;
mod keys;
mod kube_proxy;
mod kube_vip;
mod kubeadm;
mod kubelet;
mod libvirtd;
mod namespace;
mod network;
mod ports;
mod process;
mod relay;
mod scratch;
mod vcsim;

/// How long a test waits for what has to come: a peer that serves, a guest that boots, an object that becomes ready. It only ends
/// a hang, so it is far longer than anything takes on a machine with much else to do.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_mins(10);

pub use audit::{Accepted, Refusal};
pub use build::{Around, ControlPlanePrograms, around_builds, built};
pub use capv::Capv;
pub use cluster_api::{ClusterApi, ClusterApiManager, ClusterApiPrograms};
pub use control_plane::{ControlPlane, ControlPlaneOptions};
pub use cpi::Cpi;
pub use error::StartError;
pub use framework::FrameworkCcm;
pub use guest::{MicroGuest, MicroGuestImage, MicroGuestOptions};
pub use keys::authority_of_rsa;
pub use kube_proxy::KubeProxy;
pub use kube_vip::KubeVip;
pub use kubeadm::{KubeadmCluster, NodeImage};
pub use kubelet::{Kubelet, KubeletOptions};
pub use libvirtd::Libvirtd;
pub use network::Netns;
pub use ports::free_port;
pub use process::{Process, Signal};
pub use vcsim::{Vcsim, VcsimOptions, WATCH_CALLS};
