//! The text that Rancher adds to the configuration of HAProxy: the operator's lines, and the source ranges of a
//! Service in lines of ours.
//!
//! A section is a line such as `frontend 80` and the lines below it. Only our lines come and go. All others stay in
//! their sections, byte for byte.

use ipnet::IpNet;

use super::demand::Demand;

/// The name of the access list. It marks the lines that are ours.
const ACCESS_LIST: &str = "kubernetes_source_range";

/// The words that begin a section.
const SECTIONS: [&str; 14] = [
    "global",
    "defaults",
    "frontend",
    "backend",
    "listen",
    "peers",
    "resolvers",
    "userlist",
    "mailers",
    "cache",
    "program",
    "ring",
    "http-errors",
    "log-forward",
];

/// A part of the text. Each line has its end.
#[derive(Debug, Default)]
struct Section<'a> {
    /// The first line. Lines at the beginning of the text may be in no section.
    header: Option<&'a str>,
    /// Whether it had lines of ours.
    had_ours: bool,
    /// The lines of others.
    lines: Vec<&'a str>,
    /// The port whose source ranges it gets.
    port: Option<u16>,
}

impl Section<'_> {
    /// Whether this is the frontend of a port.
    fn is_frontend_of(&self, port: u16) -> bool {
        let header = self.header.unwrap_or_default();
        header.split_whitespace().eq(["frontend", port.to_string().as_str()])
    }

    /// Whether only our lines needed it.
    fn is_left_over(&self) -> bool {
        self.had_ours && self.port.is_none() && self.lines.iter().all(|line| line.trim().is_empty())
    }
}

/// The text with the source ranges of this demand in place of others.
pub(super) fn with_source_ranges(text: &str, demand: &Demand) -> String {
    let mut sections = sections(text);
    if demand.source_ranges.is_empty() && !sections.iter().any(|section| section.had_ours) {
        return text.to_owned();
    }
    let mut new = Vec::new();
    if !demand.source_ranges.is_empty() {
        for port in &demand.ports {
            match sections.iter_mut().find(|section| section.is_frontend_of(port.source)) {
                Some(section) => section.port = Some(port.source),
                None => new.push(port.source),
            }
        }
    }
    let mut result = String::new();
    for section in &sections {
        if !section.is_left_over() {
            section.header.iter().for_each(|header| add_line(&mut result, header));
        }
        if section.port.is_some() {
            add_ranges(&mut result, &demand.source_ranges);
        }
        section.lines.iter().for_each(|line| add_line(&mut result, line));
    }
    for port in new {
        add_line(&mut result, &format!("frontend {port}\n"));
        add_ranges(&mut result, &demand.source_ranges);
    }
    result
}

fn sections(text: &str) -> Vec<Section<'_>> {
    let mut sections = Vec::new();
    let mut current = Section::default();
    for line in text.split_inclusive('\n') {
        if line.split_whitespace().next().is_some_and(|word| SECTIONS.contains(&word)) {
            sections
                .push(std::mem::replace(&mut current, Section { header: Some(line), ..Section::default() }));
        } else if is_ours(line) {
            current.had_ours = true;
        } else {
            current.lines.push(line);
        }
    }
    sections.push(current);
    sections
}

fn is_ours(line: &str) -> bool {
    let words: Vec<_> = line.split_whitespace().collect();
    matches!(
        words[..],
        ["acl", ACCESS_LIST, "src", _] | ["tcp-request", "connection", "reject", "unless", ACCESS_LIST]
    )
}

/// The rules that refuse everybody outside of these networks. They come first, before rules that accept.
fn add_ranges(text: &mut String, ranges: &[IpNet]) {
    for range in ranges {
        add_line(text, &format!("    acl {ACCESS_LIST} src {range}\n"));
    }
    add_line(text, &format!("    tcp-request connection reject unless {ACCESS_LIST}\n"));
}

/// Adds a line. The one before it may have been the last one, without an end.
fn add_line(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
}

#[cfg(test)]
mod tests;
