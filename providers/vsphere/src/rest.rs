//! The Automation REST API of vCenter: its session, and the two dialects in which it is spoken.
//!
//! `/rest` is of all versions up to 8, `/api` from 7.0 U2 on. The one that the version suggests is tried first, and the other one if that
//! does not exist.

mod dialect;
mod session;

pub(crate) use self::{dialect::Dialect, session::RestSession};
