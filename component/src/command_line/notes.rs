//! What is different here about a flag of upstream's: said by a warning and in docs/flags.md.

/// A remark about one flag.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    /// The flag without its hyphens.
    pub flag: &'static str,
    /// What is different.
    pub kind: NoteKind,
    /// Why, or how; a sentence without a full stop.
    pub text: &'static str,
}

/// How a flag differs from upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// It works, with this difference.
    Differs,
    /// It has no effect here, which whoever sets it is told.
    NoEffect,
    /// It has no effect, as upstream: nobody has to be told.
    NoEffectEither,
    /// It is for a part that is not there yet.
    NotYet,
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

/// The flag has no effect, as upstream.
pub const fn no_effect_either(flag: &'static str, text: &'static str) -> Note {
    Note { flag, kind: NoteKind::NoEffectEither, text }
}

/// The flag is for a part that is not there yet.
pub const fn not_yet(flag: &'static str, text: &'static str) -> Note {
    Note { flag, kind: NoteKind::NotYet, text }
}

/// The flag is not upstream's.
pub const fn ours(flag: &'static str, text: &'static str) -> Note {
    Note { flag, kind: NoteKind::Ours, text }
}
