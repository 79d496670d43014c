//! A `ConversionReview`: its objects, converted one by one. Pure.
//!
//! Only one object at a time is more than text, and its memory is bounded while it is read.

use std::{fmt, io::Write as _};

use cloudprovider::{
    Result as Converted,
    machines::{BoundedObject, GROUP},
};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, json};

/// The version of the requests and their answers.
const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "ConversionReview";

/// Characters of a text of a request that are repeated in a message.
const QUOTED: usize = 200;

/// The answer to a review: all objects converted, or why one of them cannot be.
///
/// # Errors
/// It is not a review that can be answered: it says not what it is, or has no `request.uid`.
pub(super) fn answer(
    body: &[u8],
    convert: &dyn Fn(Value, &str) -> Converted<Value>,
) -> Result<Vec<u8>, String> {
    let review: Review =
        serde_json::from_slice(body).map_err(|error| format!("the body is not a {KIND}: {error}"))?;
    if review.api_version != API_VERSION || review.kind != KIND {
        return Err(format!(
            "the body is a {} in {}; expected a {KIND} in {API_VERSION}",
            short(&review.kind),
            short(&review.api_version)
        ));
    }
    let Some(request) = review.request else { return Err(format!("the {KIND} has no request")) };
    if request.uid.is_empty() {
        return Err("request.uid: missing".to_owned());
    }
    let converted = match version(&request.desired) {
        Some(version) => all(body, convert, version),
        None => {
            Err(format!("request.desiredAPIVersion: {} is not a version of {GROUP}", short(&request.desired)))
        }
    };
    Ok(match converted {
        Ok(objects) => response(&request.uid, &objects, &json!({"status": "Success"})),
        Err(message) => response(&request.uid, b"[]", &json!({"status": "Failure", "message": message})),
    })
}

/// The version, if the group is ours.
fn version(desired: &str) -> Option<&str> {
    desired.strip_prefix(GROUP)?.strip_prefix('/')
}

fn response(uid: &str, objects: &[u8], result: &Value) -> Vec<u8> {
    let head = json!({"uid": uid, "result": result}).to_string();
    // Without the brace at its end, and with the objects as they are in its place.
    let head = &head[..head.len() - 1];
    let mut text = Vec::with_capacity(objects.len() + head.len() + 128);
    // Writing to memory does not fail.
    let _ = write!(
        text,
        r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","response":{head},"convertedObjects":"#
    );
    text.extend_from_slice(objects);
    text.extend_from_slice(b"}}");
    text
}

fn short(text: &str) -> String {
    format!("{:?}", text.chars().take(QUOTED).collect::<String>())
}

/// A review without its objects.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    request: Option<Request>,
}

#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    uid: String,
    #[serde(default, rename = "desiredAPIVersion")]
    desired: String,
}

/// The objects of the review in another version, as a JSON list.
fn all(
    body: &[u8],
    convert: &dyn Fn(Value, &str) -> Converted<Value>,
    version: &str,
) -> Result<Vec<u8>, String> {
    let mut made = Made { convert, version, list: vec![b'['], count: 0, fault: None };
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = Inside { field: Some("request"), made: &mut made }.deserialize(&mut json);
    if let Some(fault) = made.fault {
        return Err(fault);
    }
    read.map_err(|error| format!("request.objects[{}]: {error}", made.count))?;
    made.list.push(b']');
    Ok(made.list)
}

/// What is made while the objects are read.
struct Made<'a> {
    convert: &'a dyn Fn(Value, &str) -> Converted<Value>,
    version: &'a str,
    list: Vec<u8>,
    count: usize,
    fault: Option<String>,
}

impl Made<'_> {
    /// Converts one object. After a fault the rest is only read.
    fn add(&mut self, object: Value) {
        if self.fault.is_none() {
            let what = what(&object);
            match (self.convert)(object, self.version) {
                Ok(converted) => {
                    if self.count > 0 {
                        self.list.push(b',');
                    }
                    // Writing to memory does not fail.
                    let _ = serde_json::to_writer(&mut self.list, &converted);
                }
                Err(error) => {
                    let why: String = error.report().chars().take(QUOTED * 4).collect();
                    self.fault = Some(format!("request.objects[{}] ({what}): {why}", self.count));
                }
            }
        }
        self.count += 1;
    }
}

/// Kind and name of an object, for people.
fn what(object: &Value) -> String {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let metadata = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    short(&format!("{} {}/{}", text("kind"), metadata("namespace"), metadata("name")))
}

/// Reads `objects` inside `request` of a review, and skips everything else.
struct Inside<'a, 'b> {
    /// The field to go into. `None`: the one with the objects.
    field: Option<&'static str>,
    made: &'a mut Made<'b>,
}

impl<'de> DeserializeSeed<'de> for Inside<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Inside<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            match self.field {
                Some(field) if name == field => {
                    map.next_value_seed(Inside { field: None, made: &mut *self.made })?;
                }
                None if name == "objects" => map.next_value_seed(Objects(&mut *self.made))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct Objects<'a, 'b>(&'a mut Made<'b>);

impl<'de> DeserializeSeed<'de> for Objects<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Objects<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut objects: A) -> Result<(), A::Error> {
        while let Some(object) = objects.next_element_seed(BoundedObject)? {
            self.0.add(object);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::{Error, ErrorKind};

    use super::*;

    /// Sets the version, and refuses objects of the kind "Bad".
    fn convert(mut object: Value, version: &str) -> cloudprovider::Result<Value> {
        if object["kind"] == "Bad" {
            return Err(Error::new(ErrorKind::InvalidInput, "kind: \"Bad\" has no versions here"));
        }
        object["apiVersion"] = json!(format!("{GROUP}/{version}"));
        Ok(object)
    }

    fn review(version: &str, objects: &Value) -> Vec<u8> {
        let review = json!({
            "apiVersion": API_VERSION, "kind": KIND,
            "request": {"uid": "u", "desiredAPIVersion": version, "objects": objects},
        });
        review.to_string().into_bytes()
    }

    fn answered(body: &[u8]) -> Value {
        serde_json::from_slice(&answer(body, &convert).expect("an answer")).expect("JSON")
    }

    #[test]
    fn objects_keep_their_order() {
        let objects = json!([{"kind": "A", "metadata": {"name": "1"}}, {"kind": "A", "x": [1, null, "é"]}]);
        let answer = answered(&review(&format!("{GROUP}/v2"), &objects));
        let mut expected = objects;
        for object in expected.as_array_mut().expect("a list") {
            object["apiVersion"] = json!(format!("{GROUP}/v2"));
        }
        assert_eq!(
            answer,
            json!({"apiVersion": API_VERSION, "kind": KIND, "response": {
                "uid": "u", "result": {"status": "Success"}, "convertedObjects": expected,
            }})
        );
        let none = answered(&review(&format!("{GROUP}/v2"), &json!([])));
        assert_eq!(none["response"]["convertedObjects"], json!([]));
    }

    #[test]
    fn the_version_may_come_last() {
        let body = format!(
            r#"{{"request": {{"objects": [{{"kind": "A"}}], "more": {{"objects": 1}}, "desiredAPIVersion": "{GROUP}/v2", "uid": "u"}},
                "objects": 7, "kind": "{KIND}", "apiVersion": "{API_VERSION}"}}"#
        );
        assert_eq!(answered(body.as_bytes())["response"]["convertedObjects"][0]["kind"], "A");
    }

    #[test]
    fn one_that_cannot_be_converted_fails_all_and_is_named() {
        let bad = json!({"kind": "Bad", "metadata": {"namespace": "n", "name": "b"}});
        let answer = answered(&review(&format!("{GROUP}/v2"), &json!([{"kind": "A"}, bad, {"kind": "A"}])));
        assert_eq!(answer["response"]["convertedObjects"], json!([]));
        let result = &answer["response"]["result"];
        assert_eq!(result["status"], "Failure");
        assert_eq!(result["message"], "request.objects[1] (\"Bad n/b\"): kind: \"Bad\" has no versions here");
    }

    #[test]
    fn versions_and_objects_of_others_fail_with_words() {
        for (version, objects, words) in [
            ("other.io/v1", json!([]), "request.desiredAPIVersion: \"other.io/v1\" is not a version of"),
            (GROUP, json!([]), "request.desiredAPIVersion"),
            ("infrastructure.cluster.x-k8s.io/v2", json!({}), "request.objects[0]: invalid type: map"),
        ] {
            let result = answered(&review(version, &objects))["response"]["result"].clone();
            let message = result["message"].as_str().unwrap_or_default();
            assert!(result["status"] == "Failure" && message.starts_with(words), "{result}");
        }
    }

    #[test]
    fn garbage_is_refused_with_words() {
        for (body, words) in [
            ("", "the body is not a ConversionReview"),
            ("[[[[", "the body is not a ConversionReview"),
            ("{}", "the body is a \"\" in \"\"; expected a ConversionReview"),
            (r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}"#, "has no request"),
            (
                r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {}}"#,
                "request.uid: missing",
            ),
            (r#"{"apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "ConversionReview"}"#, "v1beta1"),
        ] {
            let why = answer(body.as_bytes(), &convert).expect_err(words);
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn a_deep_object_is_a_failure() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let body = format!(
            r#"{{"apiVersion": "{API_VERSION}", "kind": "{KIND}", "request": {{"uid": "u", "desiredAPIVersion": "{GROUP}/v2",
                "objects": [{{"kind": "A"}}, {{"x": {deep}}}]}}}}"#
        );
        let result = answered(body.as_bytes())["response"]["result"].clone();
        let message = result["message"].as_str().unwrap_or_default();
        assert!(message.starts_with("request.objects[1]: recursion limit exceeded"), "{result}");
    }

    #[test]
    fn an_object_that_would_take_much_memory_is_a_failure() {
        let objects = format!(r#"[{{"kind": "A"}}, {{"kind": "A", "x": [0{}]}}]"#, ",0".repeat(2_000_000));
        let body = format!(
            r#"{{"apiVersion": "{API_VERSION}", "kind": "{KIND}", "request": {{"uid": "u", "desiredAPIVersion": "{GROUP}/v2",
                "objects": {objects}}}}}"#
        );
        let result = answered(body.as_bytes())["response"]["result"].clone();
        let message = result["message"].as_str().unwrap_or_default();
        let expected = "request.objects[1]: the object takes more than 8 MiB of memory";
        assert!(message.starts_with(expected), "{result}");
    }

    #[test]
    fn many_objects_are_converted() {
        let objects: Value = (0..5000).map(|number| json!({"kind": "A", "number": number})).collect();
        let answer = answered(&review(&format!("{GROUP}/v2"), &objects));
        assert_eq!(answer["response"]["convertedObjects"].as_array().map(Vec::len), Some(5000));
    }
}
