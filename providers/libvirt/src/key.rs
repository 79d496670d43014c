//! What libvirt is asked for.

use uuid::Uuid;

/// Something by which libvirt can be asked for a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Uuid(Uuid),
    Name(String),
}
