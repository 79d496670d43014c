//! Builds, starts and stops the real peers that tests meet: a Kubernetes control plane, a kubelet, a Go
//! cloud-controller-manager, libvirtd and small virtual machines, a vCenter simulator and vSphere's own
//! cloud-controller-manager.
//!
//! Every peer lives in a folder of its own under the system's temporary folder, listens on loopback or in a
//! network namespace of its own, and ends with the value that started it. When the test process dies without
//! dropping its values (Ctrl-C, `SIGKILL`, a panic while unwinding), the kernel ends every peer with it.
//!
//! Two ways not to start are kept apart: a machine that cannot run a peer is [`StartError::Unavailable`], with
//! what to do about it, and a peer that should run and does not is [`StartError::Failed`].
//!
//! Environment variables: `CCM_TEST_CACHE` (where built peers are kept), `KUBEBUILDER_ASSETS` (a folder with
//! `etcd`, `kube-apiserver` and `kubectl` to use instead of building them), `CCM_TEST_KEEP=1` (leave the
//! folders with logs and data behind).

mod audit;
mod build;
mod control_plane;
mod cpi;
mod error;
mod framework;
mod guest;
mod keys;
mod kubelet;
mod libvirtd;
mod namespace;
mod ports;
mod process;
mod scratch;
mod vcsim;

pub use audit::Refusal;
pub use build::{ControlPlanePrograms, built};
pub use control_plane::{ControlPlane, ControlPlaneOptions};
pub use cpi::Cpi;
pub use error::StartError;
pub use framework::FrameworkCcm;
pub use guest::{MicroGuest, MicroGuestImage, MicroGuestOptions};
pub use kubelet::{Kubelet, KubeletOptions};
pub use libvirtd::Libvirtd;
pub use process::{Process, Signal};
pub use vcsim::{Vcsim, VcsimOptions};
