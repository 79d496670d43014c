//! Objects beside machines and clusters that users make, and about which the provider says what their status is.
//!
//! They have no owner, and no step is made for them. So they are worked on apart from machines and clusters. Only those that are failure
//! domains have a finalizer, while Machines are in them.

mod decision;
pub mod states;
mod teller;

pub use self::decision::{Memory, News, Next, next, users_of, write_of};
pub(super) use self::teller::{Machines, Teller};
