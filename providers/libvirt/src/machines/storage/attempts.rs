//! The names of volumes that take long to make: images, and full copies of them.
//!
//! | Name | What it is |
//! |---|---|
//! | `BASE.ATTEMPT` | one try to make `BASE`. Only the try that made up `ATTEMPT` ever writes to it |
//! | `BASE.ATTEMPT.complete-LENGTH` | an empty volume: this try has succeeded, and its file has at least so many bytes |
//!
//! `ATTEMPT` is 16 random hexadecimal digits.

use uuid::Uuid;

/// Digits of an attempt.
const DIGITS: usize = 16;
/// Between an attempt and the length of its file.
const COMPLETE: &str = ".complete-";

/// What a name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AttemptName<'a> {
    /// What was to be made.
    pub(super) base: &'a str,
    /// The name of the volume with the content.
    pub(super) volume: &'a str,
    /// The least length of its file. `None` if the name is that of the volume itself.
    pub(super) complete: Option<u64>,
}

/// The name of a new try to make `base`.
pub(super) fn new_attempt(base: &str) -> String {
    let random = Uuid::new_v4().simple().to_string();
    format!("{base}.{}", &random[..DIGITS])
}

/// The name of the volume that says that the try `volume` has succeeded.
pub(super) fn marker(volume: &str, length: u64) -> String {
    format!("{volume}{COMPLETE}{length}")
}

/// Reads a name. `None` if it is not one of these.
pub(super) fn parse(name: &str) -> Option<AttemptName<'_>> {
    let (volume, complete) = match name.rsplit_once(COMPLETE) {
        Some((volume, length)) => {
            let number: u64 = length.parse().ok()?;
            // "+1" and "01" are not how a length is written
            if number.to_string() != length {
                return None;
            }
            (volume, Some(number))
        }
        None => (name, None),
    };
    let (base, attempt) = volume.rsplit_once('.')?;
    let is_attempt =
        attempt.len() == DIGITS && attempt.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    (is_attempt && !base.is_empty()).then_some(AttemptName { base, volume, complete })
}

/// What there is of one base in a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Attempts {
    /// Volumes with a marker, and the least lengths of their files. Sorted, so that everybody takes the first
    /// one.
    pub(super) complete: Vec<(String, u64)>,
    /// Volumes without a marker: a daemon writes to them, or did.
    pub(super) incomplete: Vec<String>,
    /// Markers without a volume.
    pub(super) markers: Vec<String>,
}

impl Attempts {
    /// Finds them among the names of a pool. `is_meant` chooses bases.
    pub(super) fn find<'a>(
        names: impl IntoIterator<Item = &'a str>,
        is_meant: impl Fn(&str) -> bool,
    ) -> Self {
        let mut found = Self::default();
        let mut marked: Vec<(AttemptName<'_>, &str)> = Vec::new();
        let mut volumes: Vec<&str> = Vec::new();
        for name in names {
            let Some(parsed) = parse(name).filter(|parsed| is_meant(parsed.base)) else { continue };
            match parsed.complete {
                Some(_) => marked.push((parsed, name)),
                None => volumes.push(name),
            }
        }
        for volume in &volumes {
            let length =
                marked.iter().filter(|(parsed, _)| parsed.volume == *volume).filter_map(|(p, _)| p.complete);
            match length.max() {
                Some(length) => found.complete.push(((*volume).to_owned(), length)),
                None => found.incomplete.push((*volume).to_owned()),
            }
        }
        let orphans = marked.iter().filter(|(parsed, _)| !volumes.contains(&parsed.volume));
        found.markers = orphans.map(|(_, name)| (*name).to_owned()).collect();
        found.complete.sort_unstable();
        found.incomplete.sort_unstable();
        found.markers.sort_unstable();
        found
    }

    /// Those of one base.
    pub(super) fn of<'a>(base: &str, names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::find(names, |other| other == base)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: &str = "image.0123456789abcdef";
    const B: &str = "image.fedcba9876543210";

    #[test]
    fn a_volume_counts_only_with_its_marker() {
        let (of_a, lost) = (marker(A, 7), marker("image.aaaaaaaaaaaaaaaa", 1));
        let names = [A, B, &of_a, &lost, "image", "other.0123456789abcdef"];
        let found = Attempts::of("image", names);
        assert_eq!(found.complete, [(A.to_owned(), 7)]);
        assert_eq!(found.incomplete, [B]);
        assert_eq!(found.markers, [lost]);
        assert!(!found.is_clean());
        assert!(Attempts::of("image", [A, &of_a]).is_clean());
    }

    #[test]
    fn everybody_takes_the_same_one_of_several() {
        let names = [B.to_owned(), A.to_owned(), marker(B, 1), marker(A, 2)];
        let found = Attempts::of("image", names.iter().map(String::as_str));
        assert_eq!(found.complete, [(A.to_owned(), 2), (B.to_owned(), 1)]);
    }

    #[test]
    fn names_of_others_are_not_taken_for_ours() {
        for name in [
            "image",
            "image.qcow2",
            "image.0123456789ABCDEF",
            "image.0123456789abcde",
            "image.0123456789abcdefa",
            ".0123456789abcdef",
            "0123456789abcdef",
            "image.0123456789abcdef.complete-",
            "image.0123456789abcdef.complete-01",
            "image.0123456789abcdef.complete-+1",
            "image.0123456789abcdef.complete",
            "image.complete-1",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn names_are_read_as_they_are_written(base in "[a-z0-9.-]{1,40}", length: u64) {
            let volume = new_attempt(&base);
            let read = parse(&volume).expect("one of ours");
            prop_assert_eq!(read, AttemptName { base: &base, volume: &volume, complete: None });
            let marker = marker(&volume, length);
            let read = parse(&marker).expect("one of ours");
            prop_assert_eq!(read, AttemptName { base: &base, volume: &volume, complete: Some(length) });
        }

        #[test]
        fn no_name_makes_the_reader_panic(name in "\\PC*") {
            let _ = parse(&name);
        }
    }
}
