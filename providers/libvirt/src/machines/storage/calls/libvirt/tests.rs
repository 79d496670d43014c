//! The calls on libvirt's test driver, which can do everything but upload and download, and on a real
//! libvirtd.

mod libvirtd;
mod test_driver;

use cloudprovider::{CloudProvider, StartContext};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{Config, LibvirtProvider};

const PATIENCE: Duration = test_env::PATIENCE;

/// A provider with one hypervisor, `kvm1`. Stopped when dropped.
struct Cloud {
    provider: LibvirtProvider,
    stop: CancellationToken,
}

impl Drop for Cloud {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Cloud {
    async fn start(uri: &str) -> Self {
        let config = format!("hypervisors:\n- {{name: kvm1, uri: '{uri}'}}\n");
        let provider = LibvirtProvider::new(Config::parse(&config, None).expect("valid"));
        let stop = CancellationToken::new();
        provider.start(StartContext::new(stop.clone(), "kubernetes")).await.expect("starts");
        let cloud = Self { provider, stop };
        let handle = cloud.provider.hypervisor("kvm1").expect("configured");
        let live = async {
            while !handle.is_live() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, live).await.expect("live in time");
        cloud
    }

    /// The calls of a new daemon.
    fn storage(&self) -> LibvirtStorage {
        let handle = self.provider.hypervisor("kvm1").expect("configured");
        LibvirtStorage::new(Arc::new(WorkerPool::new(handle.0)))
    }
}

#[test]
fn a_write_that_is_not_one_is_an_error() {
    assert_eq!(rest_of(b"abc", 2), Ok(&b"c"[..]));
    for sent in [-2, 0, 4] {
        rest_of(b"abc", sent).expect_err("not possible");
    }
}
