//! Machine infrastructure: what turns the kinds of a provider into objects of Cluster API.

pub mod crds;
pub mod reference;
