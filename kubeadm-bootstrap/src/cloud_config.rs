//! The data as cloud-init reads them: a cloud-config that is a jinja template.
//!
//! The layout is Cluster API's, which some readers of user data depend on.

mod parts;
mod scalar;

use std::fmt::Write as _;

use basics::go::quoted;
use cluster_api::kubeadm::Encoding;

use crate::error::Error;
use crate::machine_file::{Content, MachineFile};
use crate::request::{Request, Role};
use crate::resolved::{Kubeadm, Machine};
use parts::{commands, disk_setup, fs_setup, mounts, ntp, users};
use scalar::{block, indented, scalar};

const HEADER: &str = "## template: jinja\n#cloud-config\n\n";
/// Written when kubeadm has succeeded. Providers and users look for the file.
const SENTINEL: &str = "echo success > /run/cluster-api/bootstrap-success.complete";
/// Its only purpose is the folder: a command that makes one would be different on Windows.
const PLACEHOLDER: &str = "This placeholder file is used to create the /run/cluster-api sub directory in a way that is compatible with both \
Linux and Windows (mkdir -p /run/cluster-api does not work with Windows)";
const JOIN_FILE: &str = "/run/kubeadm/kubeadm-join-config.yaml";
const INIT_FILE: &str = "/run/kubeadm/kubeadm.yaml";

/// The whole document.
pub(crate) fn document(request: &Request<'_>, machine: &Machine) -> Result<String, Error> {
    let spec = request.spec;
    let mut out = String::from(HEADER);
    out.push_str("write_files:");
    for file in &machine.files {
        write_file(&mut out, file)?;
    }
    out.push('\n');
    let (path, text, command) = match &machine.kubeadm {
        Kubeadm::Init { cluster, init } => {
            let text = format!("---\n{cluster}\n---\n{init}");
            (
                INIT_FILE,
                text,
                format!("'kubeadm init --config {INIT_FILE} {} && {SENTINEL}'", machine.verbosity),
            )
        }
        Kubeadm::Join(join) => {
            let text = if request.role == Role::JoinWorker { format!("---\n{join}") } else { join.clone() };
            (
                JOIN_FILE,
                text,
                format!("kubeadm join --config {JOIN_FILE} {} && {SENTINEL}", machine.verbosity),
            )
        }
    };
    system_file(&mut out, path, &format!("|\n{}", indented(&text)));
    system_file(&mut out, "/run/cluster-api/placeholder", &quoted(PLACEHOLDER));
    out.pop();
    if !spec.boot_commands.is_empty() {
        out.push_str("\nbootcmd:");
        commands(&mut out, &spec.boot_commands);
    }
    out.push_str("\nruncmd:");
    commands(&mut out, &spec.pre_kubeadm_commands);
    out.push_str("\n  - ");
    out.push_str(&command);
    commands(&mut out, &spec.post_kubeadm_commands);
    ntp(&mut out, &spec.ntp);
    users(&mut out, &spec.users, &machine.passwords);
    disk_setup(&mut out, &spec.disk_setup);
    fs_setup(&mut out, &spec.disk_setup);
    mounts(&mut out, &spec.mounts);
    out.push('\n');
    Ok(out)
}

fn write_file(out: &mut String, file: &MachineFile) -> Result<(), Error> {
    let (encoding, content) = transferable(file)?;
    // writing into a text cannot fail
    out.push_str("\n-   path: ");
    out.push_str(&scalar(&file.path));
    if let Some(encoding) = encoding {
        let _ = write!(out, "\n    encoding: \"{encoding}\"");
    }
    if !file.owner.is_empty() {
        let _ = write!(out, "\n    owner: {}", scalar(&file.owner));
    }
    if !file.permissions.is_empty() {
        let _ = write!(out, "\n    permissions: {}", scalar::in_single_quotes(&file.permissions));
    }
    if let Some(append) = file.append {
        let _ = write!(out, "\n    append: {append}");
    }
    let _ = write!(out, "\n    content: {}", block(&content));
    Ok(())
}

/// The name of the encoding, and the content in it. What is not UTF-8 cannot stand in YAML, and is encoded.
fn transferable(file: &MachineFile) -> Result<(Option<&'static str>, String), Error> {
    use base64::Engine as _;
    let name = file.encoding.map(|encoding| match encoding {
        Encoding::Base64 => "base64",
        Encoding::Gzip => "gzip",
        Encoding::GzipBase64 => "gzip+base64",
    });
    let bytes = match &file.content {
        Content::Text(text) => return Ok((name, text.clone())),
        Content::Bytes(bytes) => bytes,
    };
    let name = match file.encoding {
        None => "base64",
        Some(Encoding::Gzip) => "gzip+base64",
        Some(Encoding::Base64 | Encoding::GzipBase64) => {
            return Err(Error::invalid(
                format!("{}.contentFrom", file.field),
                "is not base64, as the encoding says",
            ));
        }
    };
    Ok((Some(name), base64::engine::general_purpose::STANDARD.encode(bytes)))
}

fn system_file(out: &mut String, path: &str, content: &str) {
    let _ = write!(
        out,
        "-   path: {path}\n    owner: root:root\n    permissions: '0640'\n    content: {content}\n"
    );
}

#[cfg(test)]
mod tests;
