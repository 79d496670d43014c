//! How much there is in JSON, counted as it comes: an empty object has two bytes, and takes up to a kilobyte once it is read.

/// Counts values and items of a list of Kubernetes, whatever the pieces that it comes in. What is no JSON gives some number.
#[derive(Clone, Debug, Default)]
pub(super) struct JsonCount {
    /// Brackets that open and commas, so all values but those that are alone in their list or object, which counts itself.
    pub(super) values: usize,
    /// Lists and objects in a list that is a field of the whole, such as `items`.
    pub(super) items: usize,
    depth: usize,
    /// Whether the last value that opened at depth 2 is a list.
    is_field_list: bool,
    in_text: bool,
    is_escaped: bool,
}

impl JsonCount {
    /// Whether a list or an object is open, in which the end of a line means nothing.
    pub(super) fn is_open(&self) -> bool {
        self.depth > 0 && !self.in_text
    }

    /// Whether nothing is open.
    pub(super) fn is_closed(&self) -> bool {
        self.depth == 0 && !self.in_text
    }

    /// Counts the next piece.
    pub(super) fn add(&mut self, piece: &[u8]) {
        for byte in piece {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.in_text => self.is_escaped = true,
                b'"' => self.in_text = !self.in_text,
                _ if self.in_text => {}
                b'{' | b'[' => {
                    self.values += 1;
                    self.items += usize::from(self.depth == 2 && self.is_field_list);
                    self.depth += 1;
                    if self.depth == 2 {
                        self.is_field_list = *byte == b'[';
                    }
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                b',' => self.values += 1,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> (usize, usize) {
        let (mut whole, mut bytes) = (JsonCount::default(), JsonCount::default());
        whole.add(text.as_bytes());
        for byte in text.as_bytes().chunks(1) {
            bytes.add(byte);
        }
        assert_eq!((whole.values, whole.items), (bytes.values, bytes.items), "{text}");
        (whole.values, whole.items)
    }

    #[test]
    fn values_and_items_are_counted() {
        for (text, expected) in [
            ("", (0, 0)),
            ("ok", (0, 0)),
            (r#"{"metadata": {"labels": {"a": "b"}, "finalizers": ["x", "y"]}}"#, (6, 0)),
            (r#"{"metadata": {"continue": "a"}, "items": [{}, {}, {}]}"#, (9, 3)),
            (r#"{"items": [[], [[], {"a": {}}]], "metadata": {"a": {}}}"#, (12, 2)),
            // A structure may also come as a list of its fields.
            (r#"["v1", "List", {}, [{}, {}]]"#, (9, 2)),
            (r#"{"a": "[{,\"[{,\\", "b": "\\\"{"}"#, (2, 0)),
            ("}}]]{", (1, 0)),
        ] {
            assert_eq!(count(text), expected, "{text}");
        }
    }
}
