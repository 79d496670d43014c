//! What identifies an object.

use cloudprovider::{
    Error, ErrorKind, Result,
    machines::{MachineRequest, Mark},
};
use uuid::Uuid;

/// Identifies an object in the provider's memory. A UID alone does not: a user who may write an object may
/// claim that it had the UID of another namespace's object before a move.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    /// The namespace of the object.
    pub(crate) namespace: String,
    /// Its UID when it was first seen. That of a machine is the UUID of its domain.
    pub(crate) uid: Uuid,
}

impl Identity {
    /// The identity of the object with this mark.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the UID is not a UUID.
    pub(crate) fn of(mark: &Mark) -> Result<Self> {
        let uid = Uuid::parse_str(&mark.uid).map_err(|_| {
            let words = format!("the UID of the object, {:?}, is not a UUID", mark.uid);
            Error::new(ErrorKind::InvalidInput, words)
        })?;
        Ok(Self { namespace: mark.namespace.clone(), uid })
    }
}

/// Whether the object says that it had another UID before a move, or its own is not known. Another
/// namespace's object can have that one.
pub(crate) fn is_borrowed<S, C>(request: &MachineRequest<S, C>) -> bool {
    let Mark { uid, .. } = &request.mark;
    request.object_uid != *uid
}
