//! Parses SOAP responses.
//!
//! Prefixes of names are ignored: a real vCenter binds `xsi`, the simulator another prefix for the same
//! namespace.

use std::{collections::HashSet, sync::Arc};

use quick_xml::{
    NsReader,
    events::{BytesStart, Event},
    name::{Namespace, ResolveResult},
};

use crate::vim::{CallError, element::Element};

const SCHEMA_INSTANCE: Namespace<'static> = Namespace("http://www.w3.org/2001/XMLSchema-instance");

/// The limit on the nesting of a response.
const DEEPEST: usize = 64;

/// How much of a fault's message is kept.
const LONGEST_MESSAGE: usize = 300;

/// The `returnval` of a response, or several of them below an element without a name; empty if there is none.
///
/// # Errors
/// The fault, if the response is one. [`CallError::Status`] if the response is not SOAP.
pub(crate) fn read(method: &'static str, status: u16, body: &[u8]) -> Result<Element, CallError> {
    let is_good = (200..300).contains(&status);
    let no_soap = |reason: String| {
        if is_good {
            CallError::Malformed { method, reason: reason.into() }
        } else {
            CallError::Status { method, status }
        }
    };
    let text = std::str::from_utf8(body).map_err(|_| no_soap("the answer is not UTF-8".to_owned()))?;
    let envelope = tree(text).map_err(no_soap)?;
    if &*envelope.name != "Envelope" {
        return Err(no_soap("the answer is no SOAP envelope".to_owned()));
    }
    let answer = take(envelope, "Body").and_then(|body| body.children.into_iter().next());
    let Some(answer) = answer else { return Err(no_soap("the envelope is empty".to_owned())) };
    if &*answer.name == "Fault" {
        return Err(fault(method, &answer));
    }
    if !is_good {
        return Err(CallError::Status { method, status });
    }
    let mut results: Vec<_> =
        answer.children.into_iter().filter(|child| &*child.name == "returnval").collect();
    Ok(if results.len() == 1 {
        results.swap_remove(0)
    } else {
        Element { children: results.into(), ..Element::default() }
    })
}

fn take(element: Element, name: &str) -> Option<Element> {
    element.children.into_iter().find(|child| *child.name == *name)
}

fn fault(method: &'static str, fault: &Element) -> CallError {
    let detail = fault.child("detail").and_then(|detail| detail.children.first());
    let kind = match detail {
        // old servers name the element after the type
        Some(detail) => detail
            .kind
            .as_deref()
            .unwrap_or_else(|| detail.name.strip_suffix("Fault").unwrap_or(&detail.name))
            .into(),
        None => fault.text_of("faultcode").unwrap_or("an unnamed fault").into(),
    };
    let words = fault.text_of("faultstring").unwrap_or_default().trim();
    let message: String = words.chars().take(LONGEST_MESSAGE).collect();
    CallError::Fault { method, kind, message: message.into() }
}

/// Parses the response into a tree.
fn tree(text: &str) -> Result<Element, String> {
    let mut reader = NsReader::from_str(text);
    let mut names = Names::default();
    let mut open: Vec<Open> = Vec::new();
    loop {
        let event = reader.read_event().map_err(|error| format!("the answer is not XML: {error}"))?;
        match event {
            Event::Start(start) => {
                if open.len() >= DEEPEST {
                    return Err("the answer is nested too deeply".to_owned());
                }
                let element = element(&reader, &start, &mut names)?;
                open.push(Open { element, children: Vec::new(), text: String::new() });
            }
            Event::Empty(start) => {
                let element = element(&reader, &start, &mut names)?;
                match open.last_mut() {
                    Some(parent) => parent.children.push(element),
                    None => return Ok(element),
                }
            }
            Event::End(_) => {
                let Some(Open { mut element, children, text }) = open.pop() else {
                    return Err("the answer is not XML".to_owned());
                };
                // text between child elements is layout
                if children.is_empty() {
                    element.text = text.into();
                }
                element.children = children.into();
                match open.last_mut() {
                    Some(parent) => parent.children.push(element),
                    None => return Ok(element),
                }
            }
            Event::Text(words) => {
                if let Some(Open { text, .. }) = open.last_mut() {
                    text.push_str(&words.xml10_content());
                }
            }
            Event::CData(words) => {
                if let Some(Open { text, .. }) = open.last_mut() {
                    text.push_str(&words.xml10_content());
                }
            }
            Event::GeneralRef(reference) => {
                let Some(Open { text, .. }) = open.last_mut() else { continue };
                let character = reference.resolve_char_ref().map_err(|error| error.to_string())?;
                match character {
                    Some(character) => text.push(character),
                    None => match quick_xml::escape::resolve_predefined_entity(&reference.xml10_content()) {
                        Some(words) => text.push_str(words),
                        None => return Err("the answer uses an entity that XML does not define".to_owned()),
                    },
                }
            }
            Event::Eof => return Err("the answer ends too early".to_owned()),
            Event::DocType(_) => return Err("the answer has a document type".to_owned()),
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
        }
    }
}

/// Names and types of elements, each stored once.
#[derive(Default)]
struct Names(HashSet<Arc<str>>);

impl Names {
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.0.insert(Arc::clone(&name));
        name
    }
}

/// An element whose end tag has not been read yet.
struct Open {
    element: Element,
    children: Vec<Element>,
    text: String,
}

fn element(reader: &NsReader<&[u8]>, start: &BytesStart<'_>, names: &mut Names) -> Result<Element, String> {
    let mut element = Element { name: names.shared(start.local_name().as_ref()), ..Element::default() };
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| format!("the answer is not XML: {error}"))?;
        let (namespace, name) = reader.resolver().resolve_attribute(attribute.key);
        if name.as_ref() != "type" {
            continue;
        }
        let value = quick_xml::escape::unescape(&attribute.value)
            .map_err(|error| format!("the answer is not XML: {error}"))?
            .into_owned();
        match namespace {
            ResolveResult::Bound(namespace) if namespace == SCHEMA_INSTANCE => {
                let local = value.rsplit_once(':').map_or(value.as_str(), |(_, local)| local);
                element.kind = Some(names.shared(local));
            }
            ResolveResult::Unbound => element.ref_kind = Some(names.shared(&value)),
            _ => {}
        }
    }
    Ok(element)
}

#[cfg(test)]
mod tests;
