//! A machine's guestinfo metadata.

/// `guestinfo.metadata` and how it is encoded.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) text: Option<Box<str>>,
    pub(super) encoding: Option<Box<str>>,
}
