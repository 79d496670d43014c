//! Reads JSON of a stranger into no more memory than it may take.

use std::{cell::Cell, fmt};

use serde::{
    Deserializer,
    de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// Memory of one object of the API, in bytes. It is far more than the API server accepts of any kind with
/// ordinary fields.
const MAX_MEMORY: usize = 8 << 20;

/// Estimates, in bytes. A list doubles its memory when it grows. A map is a tree whose nodes have room for 11
/// fields.
const VALUE: usize = 64;
const MAP: usize = 512;
const FIELD: usize = 96;

/// Reads an object of the API. A few bytes of text, such as `0,` or `{"a":0},`, become many in memory. So the
/// text's length is no bound: the memory is counted while the text is read, and reading ends with an error
/// where it is too much.
#[derive(Clone, Copy, Debug, Default)]
pub struct BoundedObject;

impl BoundedObject {
    /// Reads it from a text.
    ///
    /// # Errors
    /// The text is not JSON, or takes too much memory.
    pub fn from_text(text: &str) -> serde_json::Result<Value> {
        let mut json = serde_json::Deserializer::from_str(text);
        let value = Self.deserialize(&mut json)?;
        json.end()?;
        Ok(value)
    }
}

impl<'de> DeserializeSeed<'de> for BoundedObject {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Part(&Cell::new(MAX_MEMORY)).deserialize(deserializer)
    }
}

/// A part of an object, with the bytes that are left.
#[derive(Clone, Copy)]
struct Part<'a>(&'a Cell<usize>);

impl Part<'_> {
    fn takes<E: de::Error>(self, bytes: usize) -> Result<(), E> {
        let left = self.0.get().checked_sub(bytes).ok_or_else(|| {
            E::custom(format_args!("the object takes more than {} MiB of memory", MAX_MEMORY >> 20))
        })?;
        self.0.set(left);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.takes(VALUE)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        self.takes(text.len())?;
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(part) = parts.next_element_seed(self)? {
            list.push(part);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let tree = if map.is_empty() { MAP } else { 0 };
            self.takes(tree + FIELD + name.len())?;
            map.insert(name, fields.next_value_seed(self)?);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_read_as_it_is() {
        let object = json!({
            "a": [null, true, -1, 1, 1.5, "x\n\u{e9}", [], {}],
            "b": {"c": {"d": "e"}, "f": u64::MAX},
        });
        assert_eq!(BoundedObject::from_text(&object.to_string()).expect("read"), object);
        BoundedObject::from_text("{} {}").expect_err("more than one");
        BoundedObject::from_text("{").expect_err("no end");
    }

    #[test]
    fn little_text_does_not_become_much_memory() {
        let lists = |part: &str| format!("[{}{part}]", format!("{part},").repeat((1 << 20) / part.len()));
        for part in ["0", "[]", "{}", r#"{"a":0}"#, r#""""#] {
            let error = BoundedObject::from_text(&lists(part)).expect_err(part).to_string();
            assert!(error.starts_with("the object takes more than 8 MiB of memory"), "{error}");
        }
        let names: Vec<_> = (0..200_000).map(|number| format!(r#""{number}":0,"#)).collect();
        let names = names.concat();
        BoundedObject::from_text(&format!(r#"{{{names}"x":0}}"#)).expect_err("too many fields");
    }

    #[test]
    fn a_long_text_is_no_more_than_it_is() {
        let object = json!({"metadata": {"annotations": {"a": "x".repeat(3 << 20)}}});
        assert_eq!(BoundedObject::from_text(&object.to_string()).expect("read"), object);
    }
}
