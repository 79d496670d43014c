//! The API of Rancher 1.6, `v2-beta`: what it answers, and what is remembered of it.

pub(crate) use crate::norman::{client, reply};

pub(crate) mod events;
pub(crate) mod follow;
pub(crate) mod inventory;
pub(crate) mod load_balancers;
pub(crate) mod model;
pub(crate) mod source;
