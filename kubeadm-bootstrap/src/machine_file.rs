//! A file of a machine, in no format yet.

use cluster_api::kubeadm::Encoding;

/// The owner of files that Cluster API adds.
const ROOT: &str = "root:root";

/// A file that the machine writes before kubeadm runs.
pub(crate) struct MachineFile {
    /// The field that it comes from, for errors.
    pub(crate) field: String,
    /// The field with its path, for errors.
    pub(crate) path_field: String,
    pub(crate) path: String,
    pub(crate) owner: String,
    pub(crate) permissions: String,
    pub(crate) encoding: Option<Encoding>,
    pub(crate) append: Option<bool>,
    pub(crate) content: Content,
}

/// The content of a file.
#[derive(Clone)]
pub(crate) enum Content {
    Text(String),
    /// It is not UTF-8.
    Bytes(Vec<u8>),
}

impl From<&[u8]> for Content {
    fn from(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Bytes(bytes.to_vec()),
        }
    }
}

impl Content {
    /// Bytes of the content.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

impl MachineFile {
    /// A file of root that is not among the files of the spec. Another field, `field`, names its path.
    pub(crate) fn of_root(field: &str, path: String, permissions: &str, content: Content) -> Self {
        let (owner, permissions) = (ROOT.to_owned(), permissions.to_owned());
        let path_field = field.to_owned();
        let field = path_field.clone();
        Self { field, path_field, path, owner, permissions, encoding: None, append: None, content }
    }
}
