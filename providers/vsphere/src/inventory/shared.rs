//! Texts that many machines have in common, each stored once.

use std::{collections::HashSet, sync::Arc};

/// At this number of texts, unused ones are dropped for the first time.
const FEW: usize = 256;

/// Texts of which there are few different ones: hosts, folders and pools by reference, networks, guest
/// operating systems.
#[derive(Debug, Default)]
pub(super) struct SharedTexts {
    known: HashSet<Arc<str>>,
    /// At this number of texts, unused ones are dropped again.
    enough: usize,
}

impl SharedTexts {
    /// Replaces a text by the stored one that is equal to it.
    pub(super) fn share(&mut self, text: &mut Arc<str>) {
        if let Some(known) = self.known.get(text) {
            *text = Arc::clone(known);
            return;
        }
        if self.known.len() >= self.enough.max(FEW) {
            self.known.retain(|text| Arc::strong_count(text) > 1);
            self.enough = 2 * self.known.len();
        }
        self.known.insert(Arc::clone(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one() {
        let mut texts = SharedTexts::default();
        let mut copies = [Arc::<str>::from("a"), "a".into(), "b".into()];
        for text in &mut copies {
            texts.share(text);
        }
        let [a, again, b] = &copies;
        assert!(Arc::ptr_eq(a, again) && !Arc::ptr_eq(a, b));
        assert_eq!((&**a, &**b), ("a", "b"));
    }

    #[test]
    fn what_nobody_has_any_more_goes() {
        let mut texts = SharedTexts::default();
        let mut kept: Arc<str> = "kept".into();
        texts.share(&mut kept);
        for number in 0..10 * FEW {
            texts.share(&mut number.to_string().into());
            assert!(texts.known.len() <= FEW);
        }
        let mut again: Arc<str> = "kept".into();
        texts.share(&mut again);
        assert!(Arc::ptr_eq(&kept, &again));
    }
}
