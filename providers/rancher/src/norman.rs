//! Rancher's own kind of HTTP API ("norman"): `v2-beta` of Rancher 1.6 and `v3` of Rancher 2.x. How it is
//! called, how its listings are paged, and what its errors mean.

pub(crate) mod client;
pub(crate) mod pages;
pub(crate) mod reply;
