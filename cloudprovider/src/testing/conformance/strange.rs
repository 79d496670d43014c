//! Texts and nodes that no provider expects.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hasher as _},
};

use crate::{CHECK_NODE_NAME, NodeIdentity};

/// Texts that a Node may contain, since nothing checks them.
pub(super) fn texts() -> Vec<String> {
    let short = [
        "",
        " ",
        "\0",
        "a\0b",
        "/",
        "//",
        "://",
        "\u{202e}",
        "\u{feff}",
        "%00",
        "../../x",
        "'; --",
        "{}",
        "-",
        "\n",
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "not-a-uuid",
        "é",
        "🜁",
    ];
    short.iter().map(|text| (*text).to_owned()).chain(["x".repeat(100_000)]).collect()
}

/// A node that no cloud has, like the one that the daemon's subcommand `check` looks up.
pub(super) fn stranger() -> NodeIdentity {
    let random = || RandomState::new().build_hasher().finish();
    let (high, low) = (random(), random());
    let uuid = format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0xfff,
        low & 0xffff_ffff_ffff
    );
    NodeIdentity { name: CHECK_NODE_NAME.to_owned(), system_uuid: Some(uuid), ..NodeIdentity::default() }
}
