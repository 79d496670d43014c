//! Where a machine goes: what the words of a spec mean in the inventory. Pure.

mod catalog;
mod finder;

pub(crate) use self::{
    catalog::{Catalog, Storage, catalog_selection, switches, switches_selection},
    finder::Finder,
};
