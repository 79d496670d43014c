//! The API of Rancher 1.6, `v2-beta`: how it is called, what it answers, and what is remembered of it.

pub(crate) mod client;
pub(crate) mod events;
pub(crate) mod follow;
pub(crate) mod inventory;
pub(crate) mod load_balancers;
pub(crate) mod model;
mod pages;
mod reply;
pub(crate) mod source;
