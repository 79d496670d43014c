//! YAML as Go's `sigs.k8s.io/yaml` writes it, byte for byte.
//!
//! kubeadm's own documents and kubeconfig files are written with it. Their readers accept other layouts too. The same bytes let
//! the tests compare with Cluster API's own output.
//!
//! One rule is different: the line breaks of YAML 1.1 that are not `\n` (U+0085, U+2028, U+2029) are always escaped. Such a
//! document can stand in a block of a cloud-config, whose reader takes them for the end of a line.

mod analysis;
mod emitter;
mod key_order;
mod resolve;

use serde_json::Value;

pub(crate) use analysis::has_indicators;

/// One document, with a line break at its end. Keys are sorted as Go sorts them.
pub(crate) fn document(value: &Value) -> String {
    emitter::Emitter::default().document(value)
}

#[cfg(test)]
mod tests;
