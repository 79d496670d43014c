//! The kinds of which the API server does more than to store them.

pub(crate) mod ip_addresses;
pub(crate) mod services;
