//! Bootstrap data of machines that kubeadm makes Nodes: what a machine reads at its first boot.
//!
//! Pure: a `KubeadmConfigSpec` and facts of the cluster become a cloud-config or an Ignition document, with kubeadm's own
//! configuration in the version of its API that the machine's Kubernetes knows. The caller reads the Secrets that
//! [`secret_references`] and [`certificate_files`] name, makes the bootstrap token if [`needs_token`], and gives all of it to
//! [`bootstrap_data`].
//!
//! The data are byte for byte those of Cluster API's own controller, which generates the test data. They differ where its texts
//! would break the document; `tests/golden.rs` has the list.
//!
//! A text of a tenant never leaves its place in the document: it is quoted where it could. What jinja makes of a text inside of
//! its place stays the tenant's own choice, since cloud-init renders the whole document before it reads it.

mod certificate_files;
mod certificates;
mod cloud_config;
mod discovery;
mod error;
mod ignition;
mod kubeadm;
mod machine_file;
mod present;
mod request;
mod resolved;
mod template;
mod validate;
mod version;
mod yaml;

pub use certificate_files::{CertificateFiles, certificate_files};
pub use certificates::{Certificates, KeyPair, Purpose, ca_cert_hashes};
pub use discovery::{complete_join, needs_token};
pub use error::Error;
pub use request::{
    BootstrapData, ClusterFacts, MOST_BYTES, Request, Role, SecretReference, SecretValues, secret_references,
};

use cluster_api::kubeadm::Format;

use resolved::Machine;

/// Makes the data that the machine reads at its first boot.
///
/// # Errors
/// [`Error::Invalid`] names the field of the `KubeadmConfig` that is wrong, [`Error::NotReady`] what the caller has not given.
pub fn bootstrap_data(request: &Request<'_>) -> Result<BootstrapData, Error> {
    validate::spec(request)?;
    let machine = Machine::resolve(request)?;
    let format = request.spec.format.unwrap_or(Format::CloudConfig);
    let bytes = match format {
        Format::CloudConfig => cloud_config::document(request, &machine)?.into_bytes(),
        Format::Ignition => ignition::document(request, &machine)?,
    };
    if bytes.len() > MOST_BYTES {
        let problem =
            format!("the bootstrap data have {} bytes, and a Secret holds {MOST_BYTES}", bytes.len());
        return Err(Error::invalid("spec", problem));
    }
    Ok(BootstrapData { bytes, format })
}
