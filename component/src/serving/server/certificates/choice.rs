//! The choice of the certificate for a client, by upstream's rules.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::pair::{Certificate, Pair};

/// A pair with the names that it serves.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub pair: Pair,
    /// The names in the flag. If empty, the pair serves the names in its certificate.
    pub names: Vec<String>,
}

/// All pairs, indexed for the choice.
#[derive(Debug)]
pub(super) struct Choice {
    default: Pair,
    named: Vec<Named>,
    by_name: HashMap<String, Certificate>,
}

impl Choice {
    pub(super) fn new(default: Pair, named: Vec<Named>) -> Self {
        let mut by_name = HashMap::new();
        // Names in flags take precedence over names in certificates. If two pairs have the same name, the
        // first one wins.
        for pair in named.iter().filter(|pair| !pair.names.is_empty()) {
            for name in &pair.names {
                by_name.entry(name.to_ascii_lowercase()).or_insert_with(|| pair.pair.certificate.clone());
            }
        }
        for pair in named.iter().filter(|pair| pair.names.is_empty()) {
            for name in &pair.pair.names {
                by_name.entry(name.clone()).or_insert_with(|| pair.pair.certificate.clone());
            }
        }
        Self { default, named, by_name }
    }

    pub(super) fn default_pair(&self) -> &Pair {
        &self.default
    }

    pub(super) fn named_pairs(&self) -> &[Named] {
        &self.named
    }

    /// The certificate for a client that sent this server name, or for one without a server name that
    /// connected to this address.
    pub(super) fn choose(&self, server_name: Option<&str>, local: IpAddr) -> Certificate {
        let Some(name) = server_name.map(str::to_ascii_lowercase) else {
            return self.by_name.get(&local.to_string()).unwrap_or(&self.default.certificate).clone();
        };
        if let Some(certificate) = self.by_name.get(&name).or_else(|| self.by_name.get(&wildcard(&name))) {
            return certificate.clone();
        }
        // A certificate may have names that its flag does not list.
        let is_for = |pair: &&Pair| pair.names.contains(&name) || pair.names.contains(&wildcard(&name));
        std::iter::once(&self.default)
            .chain(self.named.iter().map(|named| &named.pair))
            .find(is_for)
            .unwrap_or(&self.default)
            .certificate
            .clone()
    }
}

/// The wildcard pattern that matches a name: its first label is replaced by `*`.
fn wildcard(name: &str) -> String {
    match name.split_once('.') {
        Some((_, rest)) => format!("*.{rest}"),
        None => "*".to_owned(),
    }
}

/// The certificates for one connection.
#[derive(Debug)]
pub(in super::super) struct ForAddress {
    pub(super) choice: Arc<Choice>,
    pub(super) local: IpAddr,
}

impl ResolvesServerCert for ForAddress {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.choice.choose(hello.server_name(), self.local))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pair whose certificate has these names.
    fn pair(names: &[&str]) -> Pair {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let made = rcgen::generate_simple_self_signed(names).expect("made");
        Pair::parse(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes()).expect("a pair")
    }

    #[test]
    fn upstreams_rules() {
        let pairs = [
            pair(&["default.example.com"]),
            pair(&["*.one.com", "one.com"]),
            pair(&["two.com", "api.one.com"]),
            pair(&["own.com"]),
        ];
        let [default, one, two, own] = &pairs;
        let named = |pair: &Pair, names: &[&str]| Named {
            pair: pair.clone(),
            names: names.iter().map(ToString::to_string).collect(),
        };
        let choice = Choice::new(
            default.clone(),
            vec![
                named(one, &[]),
                named(two, &[]),
                named(own, &["by.flag", "*.flags", "10.0.0.7", "two.com"]),
            ],
        );
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        for (name, local, expected) in [
            (None, "127.0.0.1", default),
            (None, "10.0.0.7", own),
            (Some("nobody.org"), "10.0.0.7", default),
            (Some("localhost"), "127.0.0.1", default),
            (Some("one.com"), "127.0.0.1", one),
            (Some("WWW.One.com"), "127.0.0.1", one),
            (Some("api.one.com"), "127.0.0.1", two),
            (Some("a.b.one.com"), "127.0.0.1", default),
            (Some("two.com"), "127.0.0.1", own),
            (Some("by.flag"), "127.0.0.1", own),
            (Some("x.flags"), "127.0.0.1", own),
            (Some("own.com"), "127.0.0.1", own),
            (Some("default.example.com"), "127.0.0.1", default),
        ] {
            let chosen = choice.choose(name, address(local));
            let found = pairs.iter().position(|pair| pair.certificate.cert == chosen.cert);
            let wanted = pairs.iter().position(|pair| pair.same_as(expected));
            assert_eq!(found, wanted, "{name:?} at {local}");
        }
    }
}
