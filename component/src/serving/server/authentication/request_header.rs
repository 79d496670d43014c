//! The user that a front proxy names in headers.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue};
use percent_encoding::percent_decode_str;

use super::{super::trust::FrontProxy, User};

/// The user in the headers, if any. Call this only for a proxy whose certificate was verified.
pub(super) fn user(proxy: &FrontProxy, headers: &HeaderMap) -> Option<User> {
    let name = first(headers, &proxy.username_headers)?;
    let groups = proxy
        .group_headers
        .iter()
        .flat_map(|header| headers.get_all(header.as_str()))
        .map(text)
        .filter(|group| !group.is_empty())
        .collect();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for prefix in &proxy.extra_headers_prefix {
        let prefix = prefix.to_ascii_lowercase();
        for (header, value) in headers {
            // Header names are already in lower case.
            if let Some(key) = header.as_str().strip_prefix(&prefix) {
                let decoded = percent_decode_str(key).decode_utf8();
                let key = decoded.map_or_else(|_| key.to_owned(), std::borrow::Cow::into_owned);
                extra.entry(key).or_default().push(text(value));
            }
        }
    }
    Some(User { name, uid: first(headers, &proxy.uid_headers).unwrap_or_default(), groups, extra })
}

/// The first non-empty value of these headers, in their order.
fn first(headers: &HeaderMap, names: &[String]) -> Option<String> {
    names.iter().filter_map(|name| headers.get(name)).map(text).find(|value| !value.is_empty())
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::RequestHeaderOptions;

    fn proxy(uid_headers: &[&str]) -> FrontProxy {
        let options = RequestHeaderOptions {
            uid_headers: uid_headers.iter().map(ToString::to_string).collect(),
            username_headers: vec!["X-Other".into(), " X-Remote-User ".into()],
            ..RequestHeaderOptions::default()
        };
        FrontProxy::new(None, &options)
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")))
            .collect()
    }

    #[test]
    fn names_groups_and_extra() {
        let headers = headers(&[
            ("x-other", ""),
            ("x-remote-user", "jane"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "a"),
            ("x-remote-group", ""),
            ("x-remote-group", "b"),
            ("x-remote-extra-acme.com%2fproject", "one"),
            ("x-remote-extra-acme.com%2fproject", "two"),
            ("x-remote-extra-100%", "%"),
        ]);
        let user = user(&proxy(&["X-Remote-Uid"]), &headers).expect("a user");
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
        assert_eq!(user.groups, ["a", "b"]);
        assert_eq!(user.extra["acme.com/project"], ["one", "two"]);
        assert_eq!(user.extra["100%"], ["%"]);
    }

    #[test]
    fn nobody_is_named() {
        assert_eq!(user(&proxy(&[]), &headers(&[("x-remote-group", "system:masters")])), None);
        let jane = user(&proxy(&[]), &headers(&[("x-remote-user", "jane"), ("x-remote-uid", "7")]));
        assert_eq!(jane.expect("jane").uid, "", "a header that was not asked for");
    }
}
