//! What the watches show of the provider's [further kinds](cloudprovider::machines::FurtherKind), and what a step has read of it.
//!
//! A kind that the API server does not serve stops nobody but the steps that use it.

mod kept;
mod reader;
mod reads;
mod stores;

pub use self::{
    kept::{Kept, PackedFurther, WireFurther, key_of},
    reader::Reader,
    reads::{Place, Reads, Seen},
    stores::{Further, FurtherStore},
};

#[cfg(test)]
mod tests;
