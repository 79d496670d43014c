//! Reads a machine's `guestinfo.metadata`: the text from which cloud-init in the guest is configured.

use std::{io::Read as _, net::IpAddr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;

use provider_kit::yaml::{Node, YamlFault};

/// The most bytes that are decoded: vSphere allows about 1 MiB, and a compressed text may be a decompression
/// bomb.
const MOST_BYTES: u64 = 4 << 20;

/// Why a text cannot be read. Contains none of the text, since user data may contain secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MetadataFault {
    #[error("is not base64")]
    Base64,
    #[error("is not a gzip stream, or is larger than 4 MiB")]
    Gzip,
    #[error("is not UTF-8")]
    Utf8,
    #[error("{0}")]
    Yaml(#[from] YamlFault),
}

/// The addresses that the network configuration in `metadata` gives to interfaces, in the order of the text.
///
/// `encoding` is `base64` or `b64`, `gzip+base64` or `gz+b64`, or empty for plain text. The network
/// configuration inside may be encoded once more, as `network.encoding` says. Parts of an unknown form are
/// ignored.
pub(crate) fn static_addresses(metadata: &str, encoding: &str) -> Result<Vec<IpAddr>, MetadataFault> {
    let root = Node::parse(&decode(metadata, encoding)?)?;
    let inner = match (root.get("network"), root.get("network.encoding").and_then(Node::text)) {
        (Some(network), Some(encoding)) if !encoding.is_empty() => {
            let node = Node::parse(&decode(network.text().unwrap_or_default(), encoding)?)?;
            // cloud-init accepts it with and without its outer key
            node.get("network").cloned().unwrap_or(node)
        }
        (Some(network), _) => network.clone(),
        (None, _) => return Ok(Vec::new()),
    };
    let mut addresses = Vec::new();
    if let Some(Node::Mapping(ethernets)) = inner.get("ethernets") {
        for (_, ethernet) in ethernets {
            if let Some(Node::List(items)) = ethernet.get("addresses") {
                addresses.extend(items.iter().filter_map(address));
            }
        }
    }
    Ok(addresses)
}

/// The instance ID in `metadata`, by which cloud-init tells whether it is on a new machine. `None` if there is none, or nothing can be
/// read. The encodings are those of [`static_addresses`].
pub(crate) fn instance_id(metadata: &str, encoding: &str) -> Option<String> {
    let root = Node::parse(&decode(metadata, encoding).ok()?).ok()?;
    root.get("instance-id")?.text().filter(|id| !id.is_empty()).map(str::to_owned)
}

/// An address such as `10.0.0.5/24`, or a mapping with that as its only key: netplan's form for an address
/// with options.
fn address(node: &Node) -> Option<IpAddr> {
    let text = match node {
        Node::Mapping(entries) => &entries.first()?.0,
        node => node.text()?,
    };
    text.split('/').next()?.trim().parse().ok()
}

fn decode(text: &str, encoding: &str) -> Result<String, MetadataFault> {
    let bytes = || {
        let text: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        STANDARD.decode(text).map_err(|_| MetadataFault::Base64)
    };
    let bytes = match encoding.trim() {
        "base64" | "b64" => bytes()?,
        "gzip+base64" | "gz+b64" => {
            let mut plain = Vec::new();
            GzDecoder::new(bytes()?.as_slice())
                .take(MOST_BYTES + 1)
                .read_to_end(&mut plain)
                .map_err(|_| MetadataFault::Gzip)?;
            if plain.len() as u64 > MOST_BYTES {
                return Err(MetadataFault::Gzip);
            }
            plain
        }
        _ => return Ok(text.to_owned()),
    };
    String::from_utf8(bytes).map_err(|_| MetadataFault::Utf8)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};
    use proptest::prelude::*;

    use super::*;

    const NETWORK: &str = "version: 2\nethernets:\n  id0:\n    match: {macaddress: '00:50:56:00:00:01'}\n    \
                           addresses: [10.0.0.5/24, 'fd00::5/64']\n  id1:\n    addresses:\n    - 10.1.0.5/24\n    \
                           - 10.1.0.6/24: {label: x}\n  id2: {dhcp4: true}\n";

    fn plain() -> String {
        format!(
            "instance-id: node-1\nlocal-hostname: node-1\nnetwork:\n  {}",
            NETWORK.trim_end().replace('\n', "\n  ")
        )
    }

    fn base64(text: &[u8]) -> String {
        STANDARD.encode(text)
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).expect("memory");
        encoder.finish().expect("memory")
    }

    #[test]
    fn every_encoding_of_the_whole_and_of_the_network() {
        let expected: Vec<IpAddr> = ["10.0.0.5", "fd00::5", "10.1.0.5", "10.1.0.6"]
            .iter()
            .map(|ip| ip.parse().expect("valid"))
            .collect();
        let plain = plain();
        let inner = |network: String, encoding: &str| {
            base64(format!("network: {network}\nnetwork.encoding: {encoding}\n").as_bytes())
        };
        for (metadata, encoding) in [
            (plain.clone(), ""),
            (base64(plain.as_bytes()), "base64"),
            (base64(plain.as_bytes()), "b64"),
            (base64(&gzip(&plain)), "gzip+base64"),
            (base64(&gzip(&plain)), "gz+b64"),
            (inner(base64(NETWORK.as_bytes()), "base64"), "base64"),
            (inner(base64(NETWORK.as_bytes()), "b64"), "base64"),
            (inner(base64(&gzip(NETWORK)), "gzip+base64"), "base64"),
            (inner(base64(&gzip(NETWORK)), "gz+b64"), "b64"),
            (inner(base64(plain.as_bytes()), "base64"), "base64"),
        ] {
            assert_eq!(
                static_addresses(&metadata, encoding).as_ref(),
                Ok(&expected),
                "{encoding}: {metadata}"
            );
        }
    }

    #[test]
    fn the_instance_id_of_every_encoding() {
        let plain = plain();
        for (metadata, encoding) in [
            (plain.clone(), ""),
            (base64(plain.as_bytes()), "base64"),
            (base64(&gzip(&plain)), "gzip+base64"),
        ] {
            assert_eq!(instance_id(&metadata, encoding).as_deref(), Some("node-1"), "{encoding}");
        }
        for (metadata, encoding) in [("instance-id: ''", ""), ("a: b", ""), ("%", "base64"), ("'", "")] {
            assert_eq!(instance_id(metadata, encoding), None, "{metadata}");
        }
    }

    #[test]
    fn what_says_nothing_is_no_fault() {
        for text in [
            "",
            "{}",
            "a text",
            "network: x",
            "network: {ethernets: [1]}",
            "network: {ethernets: {a: {addresses: [x]}}}",
        ] {
            assert_eq!(static_addresses(text, ""), Ok(Vec::new()), "{text}");
        }
    }

    #[test]
    fn faults_say_nothing_of_the_text() {
        assert_eq!(static_addresses("hunter2!", "base64"), Err(MetadataFault::Base64));
        assert_eq!(static_addresses(&base64(b"hunter2"), "gzip+base64"), Err(MetadataFault::Gzip));
        assert_eq!(static_addresses(&base64(&[0xff]), "base64"), Err(MetadataFault::Utf8));
        let yaml = static_addresses("a: 'hunter2", "").expect_err("not closed");
        assert!(!yaml.to_string().contains("hunter2"), "{yaml}");
    }

    #[test]
    fn a_packed_bomb_is_refused() {
        let bomb = base64(&gzip(&" ".repeat(8 << 20)));
        assert_eq!(static_addresses(&bomb, "gzip+base64"), Err(MetadataFault::Gzip));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(?s).{0,100}", encoding in "|base64|gzip\\+base64|.{0,5}") {
            let _ = static_addresses(&text, &encoding);
            let _ = static_addresses(&base64(text.as_bytes()), &encoding);
            let _ = instance_id(&text, &encoding);
        }
    }
}
