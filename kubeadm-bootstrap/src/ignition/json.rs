//! JSON as Go's `encoding/json` writes it, which escapes what HTML and JavaScript would interpret.

use std::io;

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use crate::error::Error;

struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        let mut rest = fragment;
        while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let (before, from) = rest.split_at(at);
            writer.write_all(before.as_bytes())?;
            let mut characters = from.chars();
            if let Some(c) = characters.next() {
                write!(writer, "\\u{:04x}", u32::from(c))?;
            }
            rest = characters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

/// The value as JSON, without line breaks.
pub(super) fn encode(value: &impl Serialize) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut out, GoFormatter);
    let written = value.serialize(&mut serializer);
    written.map_err(|error| Error::invalid("spec", format!("cannot be written as Ignition: {error}")))?;
    Ok(out)
}
