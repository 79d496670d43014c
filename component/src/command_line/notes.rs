//! How flags differ from upstream's. A warning and docs/reference/flags.md tell about it.

/// A remark about one flag.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    /// The flag without its hyphens.
    pub flag: &'static str,
    /// How the flag differs.
    pub kind: NoteKind,
    /// Why or how, as a sentence without a full stop.
    pub text: &'static str,
}

/// How a flag differs from upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// It works, with this difference.
    Differs,
    /// It has no effect here. A warning tells the operator who sets it.
    NoEffect,
    /// It has no effect, as in upstream. There is no warning.
    NoEffectEither,
    /// Upstream does not have it.
    Ours,
}

/// The flag works, with this difference.
pub const fn differs(flag: &'static str, text: &'static str) -> Note {
    Note { flag, kind: NoteKind::Differs, text }
}

/// The flag has no effect here.
pub const fn no_effect(flag: &'static str, text: &'static str) -> Note {
    Note { flag, kind: NoteKind::NoEffect, text }
}

/// The flag has no effect, as in upstream.
pub const fn no_effect_either(flag: &'static str, text: &'static str) -> Note {
    Note { flag, kind: NoteKind::NoEffectEither, text }
}

/// Upstream does not have the flag.
pub const fn ours(flag: &'static str, text: &'static str) -> Note {
    Note { flag, kind: NoteKind::Ours, text }
}
