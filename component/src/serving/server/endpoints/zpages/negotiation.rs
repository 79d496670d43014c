//! Negotiates the format of a page from the `Accept` header, by upstream's rules.

use std::cmp::Reverse;

use http::{HeaderMap, header};

/// The API group of the objects.
pub(super) const GROUP: &str = "config.k8s.io";

const TEXT: &str = "text/plain";

/// The encoding of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Yaml,
}

impl Encoding {
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
        }
    }
}

/// A version of the API group. The fields are the same in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1Alpha1,
    V1Beta1,
}

impl Version {
    const ALL: [Self; 2] = [Self::V1Alpha1, Self::V1Beta1];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::V1Alpha1 => "v1alpha1",
            Self::V1Beta1 => "v1beta1",
        }
    }
}

/// The format of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Object(Encoding, Version),
}

/// All formats on offer, in the order in which a wildcard selects them.
const OFFERED: [(Option<Encoding>, &str); 3] =
    [(Some(Encoding::Json), "application/json"), (Some(Encoding::Yaml), "application/yaml"), (None, TEXT)];

/// The media types on offer, for the error message.
pub(super) fn media_types() -> String {
    OFFERED.map(|(_, media_type)| media_type).join(", ")
}

/// The client's preferred format for an object of this kind. The default is text. For an object, the header
/// has to give `as`, `g` and `v`. `None`: no format is acceptable.
pub(super) fn negotiate(headers: &HeaderMap, kind: &str) -> Option<Format> {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accept = values.collect::<Vec<_>>().join(",");
    if accept.trim().is_empty() {
        return Some(Format::Text);
    }
    let mut clauses: Vec<Clause<'_>> = accept.split(',').filter_map(Clause::read).collect();
    // Exact media types come before wildcards. The sort is stable.
    clauses.sort_by_key(|clause| (Reverse(clause.weight), clause.main == "*", clause.sub == "*"));
    clauses.iter().find_map(|clause| {
        OFFERED.into_iter().find_map(|(encoding, media_type)| clause.format(encoding, media_type, kind))
    })
}

/// One media range of an `Accept` header.
struct Clause<'a> {
    main: &'a str,
    sub: &'a str,
    /// In thousandths, more than 0.
    weight: u16,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    /// `None`: not a media range, or one with the weight 0.
    fn read(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let range = parts.next()?;
        let (main, sub) = if range == "*" { ("*", "*") } else { range.split_once('/')? };
        let mut weight = 1000;
        let mut parameters = Vec::new();
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let (name, value) = (name.trim(), value.trim());
            if name == "q" {
                weight = thousandths(value);
            } else {
                parameters.push((name, value));
            }
        }
        (weight > 0).then_some(Self { main, sub, weight, parameters })
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// The format that this media type selects. `encoding` is `None` for text.
    fn format(&self, encoding: Option<Encoding>, media_type: &str, kind: &str) -> Option<Format> {
        let (main, sub) = media_type.split_once('/')?;
        let matches = (self.main == "*" && self.sub == "*")
            || (self.main == main && (self.sub == "*" || self.sub == sub));
        let asks_for_more =
            ["stream", "sv"].iter().any(|name| self.parameter(name).is_some_and(|v| !v.is_empty()));
        if !matches || asks_for_more {
            return None;
        }
        let object = ["as", "g", "v"].map(|name| self.parameter(name));
        match encoding {
            None => (object == [None; 3]).then_some(Format::Text),
            Some(encoding) => {
                let [Some(as_kind), Some(group), Some(version)] = object else { return None };
                let version = Version::ALL.into_iter().find(|known| known.as_str() == version)?;
                (as_kind == kind && group == GROUP).then_some(Format::Object(encoding, version))
            }
        }
    }
}

/// The weight of a media range. An invalid weight counts as 0, as in upstream.
fn thousandths(text: &str) -> u16 {
    let weight: f32 = text.parse().unwrap_or_default();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1000")]
    let thousandths = (weight.clamp(0.0, 1.0) * 1000.0).round() as u16;
    thousandths
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(accept: &str) -> Option<Format> {
        let headers = [(header::ACCEPT, HeaderValue::try_from(accept).expect("a value"))];
        negotiate(&HeaderMap::from_iter(headers), "Statusz")
    }

    #[test]
    fn text_unless_an_object_is_named_in_full() {
        let json = Some(Format::Object(Encoding::Json, Version::V1Beta1));
        for (accept, expected) in [
            ("", Some(Format::Text)),
            (" ", Some(Format::Text)),
            ("*/*", Some(Format::Text)),
            ("*", Some(Format::Text)),
            ("text/*", Some(Format::Text)),
            ("text/plain", Some(Format::Text)),
            ("text/plain; charset=utf-8", Some(Format::Text)),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Some(Format::Text)),
            ("application/json;as=Statusz;g=config.k8s.io;v=v1beta1", json),
            ("application/json; v=v1beta1; g=config.k8s.io; as=Statusz", json),
            ("application/*;v=v1beta1;g=config.k8s.io;as=Statusz", json),
            ("*/*;v=v1beta1;g=config.k8s.io;as=Statusz", json),
            ("text/plain;q=0.5,application/json;v=v1beta1;g=config.k8s.io;as=Statusz", json),
            ("application/json;v=v1beta1;g=config.k8s.io;as=Statusz;pretty=1;stream=", json),
            (
                "application/yaml;v=v1alpha1;g=config.k8s.io;as=Statusz",
                Some(Format::Object(Encoding::Yaml, Version::V1Alpha1)),
            ),
            ("application/json;v=foo;g=config.k8s.io;as=Statusz,*/*", Some(Format::Text)),
            ("application/json;v=v1beta1;g=config.k8s.io;as=Statusz;q=0.1,text/plain", Some(Format::Text)),
            ("application/json", None),
            ("application/json;v=v1beta1;g=config.k8s.io", None),
            ("application/json;v=v1;g=config.k8s.io;as=Statusz", None),
            ("application/json;v=v1beta1;g=config.k8s.io;as=Flagz", None),
            ("application/json;v=v1beta1;g=apps;as=Statusz", None),
            ("application/json;v=v1beta1;g=config.k8s.io;as=Statusz;stream=watch", None),
            ("text/plain;v=v1beta1;g=config.k8s.io;as=Statusz", None),
            ("text/plain;q=0", None),
            ("application/vnd.kubernetes.protobuf", None),
            ("application/cbor;v=v1beta1;g=config.k8s.io;as=Statusz", None),
            ("application/xml", None),
            ("nonsense", None),
            ("/;=,;;=", None),
        ] {
            assert_eq!(of(accept), expected, "{accept:?}");
        }
        assert_eq!(negotiate(&HeaderMap::new(), "Statusz"), Some(Format::Text));
    }
}
