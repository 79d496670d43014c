//! Entry points for benchmarks that are not public otherwise.

use crate::{inventory::Inventory, soap::parse, vim::property_collector::read_listing};

const METHOD: &str = "RetrievePropertiesEx";

/// Reads a `RetrievePropertiesEx` response from this SOAP envelope into an empty inventory, and counts its
/// machines.
///
/// # Errors
/// What is wrong with the response.
pub fn read_machines(envelope: &[u8]) -> Result<usize, String> {
    let answer = parse::read(METHOD, 200, envelope).map_err(|error| error.to_string())?;
    let page = read_listing(METHOD, &answer).map_err(|error| error.to_string())?;
    let mut inventory = Inventory::default();
    inventory.apply(&page.objects);
    Ok(inventory.machines().len())
}
