//! Rancher 1.6, API `v2-beta`: how it is called, what it answers, what is remembered of it, its hosts as instances, and
//! its load balancers.

pub(crate) use crate::norman::{client, reply};

pub(crate) mod addresses;
mod detect;
pub(crate) mod events;
pub(crate) mod follow;
pub(crate) mod instances;
pub(crate) mod inventory;
pub(crate) mod judge;
pub(crate) mod load_balancer;
pub(crate) mod model;
mod requests;
pub(crate) mod source;
