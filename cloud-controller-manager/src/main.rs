//! The cloud-controller-manager: the only place that knows the providers.

#[cfg(test)]
mod generated_files;
#[cfg(test)]
mod stored_versions;

use std::process::ExitCode;

use ccm::program::Program;
use cloudprovider::Registry;

fn main() -> ExitCode {
    let program = Program::new("cloud-controller-manager", env!("CARGO_PKG_VERSION"))
        .with_commit(option_env!("CCM_GIT_COMMIT"))
        .with_build_date(option_env!("CCM_BUILD_DATE"));
    ccm::app::main_as(program, registry)
}

/// The providers that this binary was built with.
#[cfg_attr(
    not(any(feature = "libvirt", feature = "rancher", feature = "vsphere")),
    expect(clippy::unnecessary_wraps, reason = "a build may have no provider")
)]
fn registry() -> cloudprovider::Result<Registry> {
    let mut registry = Registry::new();
    registry.log_crate(env!("CARGO_CRATE_NAME"));
    #[cfg(feature = "libvirt")]
    registry.register(cloudprovider_libvirt::NAME, cloudprovider_libvirt::factory)?;
    #[cfg(all(feature = "libvirt", feature = "machines"))]
    registry.register_machines(cloudprovider_libvirt::NAME, cloudprovider_libvirt::machine_types())?;
    #[cfg(feature = "rancher")]
    registry.register(cloudprovider_rancher::NAME, cloudprovider_rancher::factory)?;
    #[cfg(feature = "vsphere")]
    registry.register(cloudprovider_vsphere::NAME, cloudprovider_vsphere::factory)?;
    #[cfg(all(feature = "vsphere", feature = "machines"))]
    registry.register_machines(cloudprovider_vsphere::NAME, cloudprovider_vsphere::machine_types())?;
    Ok(registry)
}
