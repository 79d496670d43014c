//! Keys for look-ups at libvirt.

use uuid::Uuid;

/// A key by which libvirt can be asked for a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Uuid(Uuid),
    Name(String),
}
