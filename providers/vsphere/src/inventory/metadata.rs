//! What a machine says of itself in its guestinfo.

/// `guestinfo.metadata` and how it is encoded.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) text: Option<Box<str>>,
    pub(super) encoding: Option<Box<str>>,
}
