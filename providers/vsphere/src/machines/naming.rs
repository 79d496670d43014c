//! The name of a virtual machine, of its `VSphereVM`, and so of its Node. Pure: it is the same in every step, whatever was lost.
//!
//! The rules are those of Cluster API Provider vSphere, so that a machine that it has made is found under its name.

mod evaluate;
mod functions;
mod parse;

use cloudprovider::{Result, machines::MachineRequest};

use self::{evaluate::evaluate, parse::parse};
use super::spec::{OperatingSystem, VSphereMachineSpec, invalid};

/// Longer names are cut.
const MAX_NAME: usize = 63;

/// The longest name of a machine with Windows.
const MAX_WINDOWS_NAME: usize = 15;

/// What is left of a longer name: its beginning and its end.
const WINDOWS_FIRST: usize = 9;
const WINDOWS_LAST: usize = 5;

const TEMPLATE: &str = "spec.naming.template";

/// The name of a machine.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](cloudprovider::ErrorKind::InvalidInput) with the name of the field, if the spec gives none.
pub(crate) fn vm_name<C>(request: &MachineRequest<VSphereMachineSpec, C>) -> Result<String> {
    let MachineRequest { spec, mark, machine_name, .. } = request;
    let template = spec.naming.as_ref().and_then(|naming| naming.template.as_deref());
    let system = if is_windows(spec) { System::Windows } else { System::Other };
    name(template.filter(|template| !template.is_empty()), system, mark.name(), machine_name)
}

/// The same for messages, and where nothing was made if there is no such name: then it is that of the object.
pub(crate) fn vm_name_or_own<C>(request: &MachineRequest<VSphereMachineSpec, C>) -> String {
    vm_name(request).unwrap_or_else(|_| request.mark.name().to_owned())
}

/// Whether a machine runs Windows.
pub(crate) fn is_windows(spec: &VSphereMachineSpec) -> bool {
    spec.clone.os == Some(OperatingSystem::Windows)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Windows,
    Other,
}

/// The name that a template makes of that of the Machine. Without a template it is that of the object itself, `own`.
fn name(template: Option<&str>, system: System, own: &str, machine: &str) -> Result<String> {
    let (name, of, field) = match template {
        Some(template) => {
            let name = generated(template, machine).map_err(|why| invalid(format!("{TEMPLATE}: {why}")))?;
            (name, machine, TEMPLATE)
        }
        None if system == System::Other => return Ok(own.to_owned()),
        None => (own.to_owned(), own, "metadata.name"),
    };
    let name = match system {
        // A machine with a short name has a short template too.
        System::Windows if of.len() > MAX_WINDOWS_NAME => cut_for_windows(&name).unwrap_or(name),
        System::Windows | System::Other => name,
    };
    if system == System::Windows && name.len() > MAX_WINDOWS_NAME {
        return Err(invalid(format!(
            "{field}: {name:?} has more than {MAX_WINDOWS_NAME} characters, and a machine with Windows cannot have them"
        )));
    }
    if !is_name(&name) {
        return Err(invalid(format!(
            "{field}: {name:?} is no name: it has lower-case letters, digits, - and ., and begins and ends with a letter or digit"
        )));
    }
    Ok(name)
}

/// What a template gives, cut at the longest name.
fn generated(template: &str, machine: &str) -> Result<String, String> {
    let mut name = String::new();
    evaluate(&parse(template)?, machine, &mut name)?;
    Ok(name.get(..MAX_NAME).map(str::to_owned).unwrap_or(name))
}

/// A long name, cut. One that is shorter than the part that is kept stays as it is.
fn cut_for_windows(name: &str) -> Option<String> {
    let first = name.get(..WINDOWS_FIRST)?;
    let last = name.get(name.len().checked_sub(WINDOWS_LAST)?..)?;
    Some(format!("{}-{last}", first.strip_suffix('-').unwrap_or(first)))
}

/// Whether an object may have this name: a subdomain of DNS (RFC 1123).
fn is_name(name: &str) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.split('.').all(|label| {
        let (label, ends) = (label.as_bytes(), [label.as_bytes().first(), label.as_bytes().last()]);
        ends.iter().all(|end| end.is_some_and(is_letter))
            && label.iter().all(|byte| is_letter(byte) || *byte == b'-')
    })
}

#[cfg(test)]
mod tests;
