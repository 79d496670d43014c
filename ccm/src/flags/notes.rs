//! What is different here about a flag of upstream's: said by a warning and in docs/flags.md.

/// A remark about one flag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    /// The flag without its hyphens.
    pub(super) flag: &'static str,
    /// What is different.
    pub(super) kind: NoteKind,
    /// Why, or how; a sentence without a full stop.
    pub(super) text: &'static str,
}

/// How a flag differs from upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoteKind {
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

pub(super) const fn differs(flag: &'static str, text: &'static str) -> Note {
    Note { flag, kind: NoteKind::Differs, text }
}

pub(super) const fn no_effect(flag: &'static str, text: &'static str) -> Note {
    Note { flag, kind: NoteKind::NoEffect, text }
}

pub(super) const fn no_effect_either(flag: &'static str, text: &'static str) -> Note {
    Note { flag, kind: NoteKind::NoEffectEither, text }
}

pub(super) const fn not_yet(flag: &'static str, text: &'static str) -> Note {
    Note { flag, kind: NoteKind::NotYet, text }
}

pub(super) const fn ours(flag: &'static str, text: &'static str) -> Note {
    Note { flag, kind: NoteKind::Ours, text }
}
