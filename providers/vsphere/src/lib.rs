//! vSphere as a cloud: one or more vCenters.

/// The provider's name, as in `--cloud-provider` and before the `://` of its provider IDs.
pub const NAME: &str = "vsphere";
