//! A request for a clone, as a list of facts that can be compared one by one.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::{Context, Result, ensure};
use quick_xml::{
    Reader,
    events::{BytesStart, Event},
};

/// Whose values the machine tells, in a form that can be compared.
const TOLD_BY_THE_MACHINE: &str = "guestinfo.";

/// An element with its children, or with its text.
#[derive(Default)]
struct Element {
    name: String,
    kind: Option<String>,
    text: String,
    children: Vec<Self>,
}

/// What a request says, by names such as `CloneSpec.location.diskMoveType`, and the order in which each element has its fields.
pub(super) struct Request {
    pub(super) facts: BTreeMap<String, String>,
    pub(super) orders: BTreeMap<String, Vec<String>>,
}

/// Reads a `CloneVM_Task`, for the machine with this name.
pub(super) fn read(text: &str, machine: &str) -> Result<Request> {
    let whole = parse(text).with_context(|| text.to_owned())?;
    let call = find(&whole, "CloneVM_Task").with_context(|| text.to_owned())?;
    let part = |name: &str| call.children.iter().find(|child| child.name == name).context(name.to_owned());
    ensure!(part("name")?.text == machine, "the last clone is that of {:?}", part("name")?.text);
    let mut request = Request { facts: BTreeMap::new(), orders: BTreeMap::new() };
    request.facts.insert("CloneSpec folder".to_owned(), part("folder")?.text.clone());
    request.add("CloneSpec", part("spec")?);
    Ok(request)
}

impl Request {
    fn add(&mut self, name: &str, element: &Element) {
        if let Some(kind) = &element.kind {
            self.facts.insert(format!("{name} type"), kind.clone());
        }
        if element.children.is_empty() {
            self.facts.insert(name.to_owned(), element.text.clone());
            return;
        }
        let mut order: Vec<String> = Vec::new();
        let mut counts = BTreeMap::<String, usize>::new();
        for child in &element.children {
            if order.last() != Some(&child.name) {
                order.push(child.name.clone());
            }
            let label = match child.name.as_str() {
                "extraConfig" => {
                    let key = child.text_of("key");
                    if key.starts_with(TOLD_BY_THE_MACHINE) {
                        continue;
                    }
                    key
                }
                "deviceChange" => {
                    let device = child.children.iter().find(|one| one.name == "device");
                    let kind = device.and_then(|device| device.kind.clone()).unwrap_or_default();
                    let key = device.map(|device| device.text_of("key")).unwrap_or_default();
                    let label = format!("{} {kind}", child.text_of("operation"));
                    // keys of new devices are invented
                    if key.starts_with('-') { numbered(&mut counts, label) } else { format!("{label} {key}") }
                }
                "disk" => child.text_of("diskId"),
                "profile" => numbered(&mut counts, child.name.clone()),
                _ => {
                    self.add(&format!("{name}.{}", child.name), child);
                    continue;
                }
            };
            self.add(&format!("{name}.{}[{label}]", child.name), child);
        }
        let changes = element.children.iter().filter(|child| child.name == "deviceChange");
        let changes: Vec<String> = changes.map(|change| change.text_of("operation")).collect();
        if !changes.is_empty() {
            // an edit that says nothing new is left out by one of the two
            let kinds = changes.iter().filter(|operation| *operation != "edit").cloned().collect::<Vec<_>>();
            self.facts.insert(format!("{name}.deviceChange in order"), kinds.join(", "));
        }
        self.orders.insert(name.to_owned(), order);
    }
}

fn numbered(counts: &mut BTreeMap<String, usize>, label: String) -> String {
    let count = counts.entry(label.clone()).or_default();
    let numbered = format!("{label} {count}");
    *count += 1;
    numbered
}

impl Element {
    fn of(start: &BytesStart<'_>) -> Result<Self> {
        let name = start.local_name().as_ref().to_owned();
        let mut kind = None;
        for attribute in start.attributes() {
            let attribute = attribute?;
            // without a prefix it is the type of a reference
            if attribute.key.local_name().as_ref() == "type" && attribute.key.prefix().is_some() {
                kind = Some(attribute.value.rsplit(':').next().unwrap_or_default().to_owned());
            }
        }
        Ok(Self { name, kind, ..Self::default() })
    }

    fn text_of(&self, child: &str) -> String {
        self.children.iter().find(|one| one.name == child).map(|one| one.text.clone()).unwrap_or_default()
    }
}

fn find<'a>(element: &'a Element, name: &str) -> Option<&'a Element> {
    if element.name == name {
        return Some(element);
    }
    element.children.iter().find_map(|child| find(child, name))
}

fn parse(text: &str) -> Result<Element> {
    let mut reader = Reader::from_str(text);
    let mut open = vec![Element::default()];
    loop {
        match reader.read_event()? {
            Event::Start(start) => open.push(Element::of(&start)?),
            Event::Empty(start) => {
                let element = Element::of(&start)?;
                open.last_mut().context("an element")?.children.push(element);
            }
            Event::End(_) => {
                let element = open.pop().context("an element")?;
                open.last_mut().context("an element")?.children.push(element);
            }
            Event::Text(text) => open.last_mut().context("an element")?.text += &text.xml10_content(),
            Event::GeneralRef(reference) => {
                let element = open.last_mut().context("an element")?;
                write!(element.text, "&{};", reference.xml10_content())?;
            }
            Event::Eof => return open.pop().context("an element"),
            _ => {}
        }
    }
}
