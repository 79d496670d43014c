//! What the machine gets, with all references resolved and in no format yet.

use cluster_api::SecretText;
use cluster_api::kubeadm::{FileContentFormat, User};

use crate::error::Error;
use crate::machine_file::{Content, MachineFile};
use crate::request::{MOST_BYTES, Request, Role};
use crate::version::{Api, normalized};
use crate::{certificate_files, discovery, kubeadm, template};

/// What one machine gets beside what its spec says without references.
pub(crate) struct Machine {
    /// Certificates, the files of the spec, and a kubeconfig for discovery, in this order.
    pub(crate) files: Vec<MachineFile>,
    /// The password hash of each user of the spec.
    pub(crate) passwords: Vec<Option<SecretText>>,
    /// kubeadm's configuration.
    pub(crate) kubeadm: Kubeadm,
    /// The flag of kubeadm's verbosity, or nothing.
    pub(crate) verbosity: String,
}

/// kubeadm's configuration, as YAML.
pub(crate) enum Kubeadm {
    /// For `kubeadm init`.
    Init {
        /// The document `ClusterConfiguration`.
        cluster: String,
        /// The document `InitConfiguration`.
        init: String,
    },
    /// For `kubeadm join`: the document `JoinConfiguration`.
    Join(String),
}

impl Machine {
    pub(crate) fn resolve(request: &Request<'_>) -> Result<Self, Error> {
        let spec = request.spec;
        let api = Api::of(request.kubernetes_version)?;
        let mut files =
            if request.role == Role::JoinWorker { Vec::new() } else { certificate_files::files(request)? };
        files.extend(own_files(request)?);
        let kubeadm = if request.role == Role::Init {
            Kubeadm::Init {
                cluster: kubeadm::cluster_configuration(request, api)?,
                init: kubeadm::init_configuration(&spec.init_configuration, api)?,
            }
        } else {
            let join = discovery::complete_join(request)?;
            files.extend(discovery::kubeconfig(&join));
            Kubeadm::Join(kubeadm::join_configuration(&join, request.role, api)?)
        };
        let verbosity = spec.verbosity.map(|level| format!("--v {level}")).unwrap_or_default();
        Ok(Self { files, passwords: passwords(request)?, kubeadm, verbosity })
    }
}

fn own_files(request: &Request<'_>) -> Result<Vec<MachineFile>, Error> {
    let version = control_plane_version(request)?;
    let mut size = 0;
    let mut files = Vec::new();
    for (index, file) in request.spec.files.iter().enumerate() {
        let field = format!("spec.files[{index}]");
        let secret = &file.content_from.secret;
        let mut content = if secret.name.is_empty() {
            Content::Text(file.content.as_deref().unwrap_or_default().to_owned())
        } else {
            Content::from(secret_value(request, &format!("{field}.contentFrom"), &secret.name, &secret.key)?)
        };
        if file.content_format == Some(FileContentFormat::Template) {
            let Content::Text(text) = &content else {
                return Err(Error::invalid(format!("{field}.contentFrom"), "a template is UTF-8"));
            };
            let rendered = template::render(text, version.as_deref());
            content = Content::Text(
                rendered.map_err(|problem| Error::invalid(format!("{field}.content"), problem))?,
            );
        }
        size += content.len();
        if size > MOST_BYTES {
            let problem = format!(
                "with this file, the files have more than the {MOST_BYTES} bytes that a Secret holds"
            );
            return Err(Error::invalid(field, problem));
        }
        files.push(MachineFile {
            path_field: format!("{field}.path"),
            field,
            path: file.path.clone(),
            owner: file.owner.clone().unwrap_or_default(),
            permissions: file.permissions.clone().unwrap_or_default(),
            encoding: file.encoding,
            append: file.append,
            content,
        });
    }
    Ok(files)
}

/// The version that templates use, with a `v` and three numbers.
fn control_plane_version(request: &Request<'_>) -> Result<Option<String>, Error> {
    let Some(version) = request.control_plane_version.filter(|version| !version.is_empty()) else {
        return Ok(None);
    };
    let problem =
        || Error::not_ready(format!("the control plane's version {} is none", basics::go::quoted(version)));
    normalized(version).map(Some).ok_or_else(problem)
}

fn passwords(request: &Request<'_>) -> Result<Vec<Option<SecretText>>, Error> {
    let of_user = |(index, user): (usize, &User)| {
        let secret = &user.passwd_from.secret;
        if secret.name.is_empty() {
            return Ok(user.passwd.clone().filter(|password| !password.is_empty()));
        }
        let field = format!("spec.users[{index}].passwdFrom");
        let value = secret_value(request, &field, &secret.name, &secret.key)?;
        let text = std::str::from_utf8(value).map_err(|_| {
            Error::invalid(&field, format!("key {} of Secret {} is not UTF-8", secret.key, secret.name))
        })?;
        Ok(Some(SecretText::from(text)))
    };
    request.spec.users.iter().enumerate().map(of_user).collect()
}

fn secret_value<'a>(request: &Request<'a>, field: &str, name: &str, key: &str) -> Result<&'a [u8], Error> {
    let missing = || Error::not_ready(format!("{field}: Secret {name} with key {key} does not exist"));
    request.secrets.get(name, key).ok_or_else(missing)
}
