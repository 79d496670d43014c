//! Layout: indentation, line breaks, and the form of each text.

use serde_json::{Map, Value};

use super::analysis::{Analysis, is_other_break, is_printable};
use super::key_order::sorted;
use super::resolve::is_text;

/// A space beyond this column becomes a line break, in texts without line breaks of their own.
const WIDTH: usize = 80;
const STEP: usize = 2;
/// Bytes of the longest key that stands before its colon on one line.
const LONGEST_SIMPLE_KEY: usize = 128;

/// Writes one document.
#[derive(Default)]
pub(super) struct Emitter {
    out: String,
    column: usize,
    /// The last character separates, so that no space is needed.
    is_after_blank: bool,
    /// Nothing but indentation and list marks stands on the line.
    is_in_indentation: bool,
}

/// Where a text stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Key,
    Value,
}

impl Emitter {
    pub(super) fn document(mut self, value: &Value) -> String {
        self.is_after_blank = true;
        self.is_in_indentation = true;
        self.node(value, None, false);
        self.indent(0);
        self.out
    }

    /// Writes a value that belongs to a collection with the indentation `outer`.
    fn node(&mut self, value: &Value, outer: Option<usize>, is_mapping_value: bool) {
        match value {
            Value::Null => self.plain("null", outer, Place::Value),
            Value::Bool(value) => self.plain(if *value { "true" } else { "false" }, outer, Place::Value),
            Value::Number(number) => self.plain(&number.to_string(), outer, Place::Value),
            Value::String(text) => self.text(text, outer, Place::Value),
            Value::Array(items) if items.is_empty() => self.empty("[", "]"),
            Value::Object(fields) if fields.is_empty() => self.empty("{", "}"),
            Value::Array(items) => self.list(items, outer, is_mapping_value),
            Value::Object(fields) => self.mapping(fields, outer),
        }
    }

    fn list(&mut self, items: &[Value], outer: Option<usize>, is_mapping_value: bool) {
        let indent = match outer {
            // a list in a mapping has the indentation of its key
            Some(outer) if is_mapping_value && !self.is_in_indentation => outer,
            Some(outer) => outer + STEP,
            None => 0,
        };
        for item in items {
            self.indent(indent);
            self.indicator("-", true, false, true);
            self.node(item, Some(indent), false);
        }
    }

    fn mapping(&mut self, fields: &Map<String, Value>, outer: Option<usize>) {
        let indent = outer.map_or(0, |outer| outer + STEP);
        for (key, value) in sorted(fields.iter().collect()) {
            self.indent(indent);
            if key.len() <= LONGEST_SIMPLE_KEY && !Analysis::of(key).is_multiline {
                self.text(key, Some(indent), Place::Key);
                self.indicator(":", false, false, false);
            } else {
                self.indicator("?", true, false, true);
                self.text(key, Some(indent), Place::Value);
                self.indent(indent);
                self.indicator(":", true, false, true);
            }
            self.node(value, Some(indent), true);
        }
    }

    fn empty(&mut self, open: &str, close: &str) {
        self.indicator(open, true, true, false);
        self.indicator(close, false, false, false);
    }

    fn text(&mut self, text: &str, outer: Option<usize>, place: Place) {
        let form = Analysis::of(text);
        let indent = outer.map_or(STEP, |outer| outer + STEP);
        if text.contains('\n') {
            if form.allows_block && place == Place::Value {
                self.block(text, indent);
            } else {
                self.double_quoted(text, indent, place);
            }
        } else if !is_text(text) {
            self.double_quoted(text, indent, place);
        } else if form.allows_plain {
            self.plain(text, outer, place);
        } else if form.allows_single_quotes {
            self.single_quoted(text, indent, place);
        } else {
            self.double_quoted(text, indent, place);
        }
    }

    fn plain(&mut self, text: &str, outer: Option<usize>, place: Place) {
        if !self.is_after_blank {
            self.put(' ');
        }
        let indent = outer.map_or(STEP, |outer| outer + STEP);
        self.folded(text, indent, place, Self::put);
        self.end_of_text();
    }

    fn single_quoted(&mut self, text: &str, indent: usize, place: Place) {
        self.indicator("'", true, false, false);
        self.folded(text, indent, place, |writer, c| {
            if c == '\'' {
                writer.put(c);
            }
            writer.put(c);
        });
        self.indicator("'", false, false, false);
        self.end_of_text();
    }

    /// Writes a text without line breaks. A single space that is too far to the right becomes a line break.
    fn folded(&mut self, text: &str, indent: usize, place: Place, mut write: impl FnMut(&mut Self, char)) {
        let mut previous = None;
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            let next = rest.clone().next();
            let is_single_space =
                c == ' ' && previous.is_some_and(|c| c != ' ') && next.is_some_and(|c| c != ' ');
            if is_single_space && place == Place::Value && self.column > WIDTH {
                self.indent(indent);
            } else {
                write(self, c);
            }
            if c != ' ' {
                self.is_in_indentation = false;
            }
            previous = Some(c);
        }
    }

    fn double_quoted(&mut self, text: &str, indent: usize, place: Place) {
        self.indicator("\"", true, false, false);
        // Go's writer escapes everything if the text begins with a byte order mark.
        let escapes_all = text.starts_with('\u{feff}');
        let mut after_space = false;
        let mut rest = text.char_indices();
        while let Some((at, c)) = rest.next() {
            if escapes_all || !is_printable(c) || is_other_break(c) || matches!(c, '\n' | '"' | '\\') {
                self.escape(c);
                after_space = false;
            } else if c == ' ' {
                let next = rest.clone().next().map(|(_, c)| c);
                if place == Place::Value && !after_space && self.column > WIDTH && at > 0 && next.is_some() {
                    self.indent(indent);
                    if next == Some(' ') {
                        self.put('\\');
                    }
                } else {
                    self.put(c);
                }
                after_space = true;
            } else {
                self.put(c);
                after_space = false;
            }
        }
        self.indicator("\"", false, false, false);
        self.end_of_text();
    }

    fn escape(&mut self, c: char) {
        let name = match c {
            '\0' => '0',
            '\x07' => 'a',
            '\x08' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\x0b' => 'v',
            '\x0c' => 'f',
            '\r' => 'r',
            '\x1b' => 'e',
            '"' => '"',
            '\\' => '\\',
            '\u{85}' => 'N',
            '\u{a0}' => '_',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            other => {
                let code = u32::from(other);
                let digits = match code {
                    0..=0xff => format!("x{code:02X}"),
                    0x100..=0xffff => format!("u{code:04X}"),
                    _ => format!("U{code:08X}"),
                };
                self.put('\\');
                digits.chars().for_each(|digit| self.put(digit));
                return;
            }
        };
        self.put('\\');
        self.put(name);
    }

    fn block(&mut self, text: &str, indent: usize) {
        self.indicator("|", true, false, false);
        if text.starts_with([' ', '\n']) {
            self.indicator(&STEP.to_string(), false, false, false);
        }
        if !text.ends_with('\n') {
            self.indicator("-", false, false, false);
        } else if text.ends_with("\n\n") || text == "\n" {
            self.indicator("+", false, false, false);
        }
        self.line_break();
        self.is_in_indentation = true;
        self.is_after_blank = true;
        let mut is_at_line_start = true;
        for c in text.chars() {
            if c == '\n' {
                self.line_break();
                self.is_in_indentation = true;
                is_at_line_start = true;
            } else {
                if is_at_line_start {
                    self.indent(indent);
                }
                self.put(c);
                self.is_in_indentation = false;
                is_at_line_start = false;
            }
        }
    }

    fn end_of_text(&mut self) {
        self.is_after_blank = false;
        self.is_in_indentation = false;
    }

    fn indicator(&mut self, text: &str, needs_blank: bool, is_blank: bool, is_indentation: bool) {
        if needs_blank && !self.is_after_blank {
            self.put(' ');
        }
        text.chars().for_each(|c| self.put(c));
        self.is_after_blank = is_blank;
        self.is_in_indentation = self.is_in_indentation && is_indentation;
    }

    /// Goes to the column `indent`, on a new line if this one has more than indentation.
    fn indent(&mut self, indent: usize) {
        if !self.is_in_indentation || self.column > indent || (self.column == indent && !self.is_after_blank)
        {
            self.line_break();
        }
        while self.column < indent {
            self.put(' ');
        }
        self.is_after_blank = true;
        self.is_in_indentation = true;
    }

    fn line_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }
}
