//! The kinds of the objects.

use cloudprovider::machines::{Kind, Kinds};

/// `LibvirtMachine`, `LibvirtCluster` and their templates.
pub(crate) const KINDS: Kinds = Kinds::new(
    "v1alpha1",
    Kind::new("LibvirtMachine", "libvirtmachines"),
    Kind::new("LibvirtCluster", "libvirtclusters"),
);
