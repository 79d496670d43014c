//! What the watches show of the provider's [auxiliary kinds](cloudprovider::machines::AuxiliaryKind), and
//! what a step has read of it.
//!
//! A kind that the API server does not serve stops the steps that use it, and no others.

mod object;
mod reader;
mod reads;
mod stores;

pub use self::{
    object::{Auxiliary, PackedAuxiliary, WireAuxiliary, key_of},
    reader::Reader,
    reads::{Place, Reads, Seen},
    stores::{AuxiliaryStore, AuxiliaryStores},
};

#[cfg(test)]
mod tests;
