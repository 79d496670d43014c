//! What fuzz targets and measurements call. No part of the interface.

use std::sync::Arc;

use crate::{
    Config, LibvirtProvider,
    machines::{HostCalls, TestDriverStorage, image_size_in_header},
};

/// Reads the first bytes of an image: the size of its disk, or why it cannot be used.
pub fn image_header(bytes: &[u8]) -> Result<Option<u64>, String> {
    image_size_in_header(bytes)
}

/// A provider whose hypervisors are all of libvirt's test driver. That refuses uploads, which is overlooked
/// here: seeds are volumes without content. Everything else is as with any hypervisor.
pub fn provider_on_test_driver(config: Config) -> LibvirtProvider {
    LibvirtProvider::with_calls(config, &|workers| HostCalls {
        storage: Arc::new(TestDriverStorage::new(Arc::clone(workers))),
        ..HostCalls::of_libvirt(workers)
    })
}
