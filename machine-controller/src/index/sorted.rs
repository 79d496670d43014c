//! A set for few elements.

/// A set in order. Most have one element, of which a tree would take the room of eleven.
#[derive(Debug)]
pub(super) struct Sorted<T>(Vec<T>);

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Ord> Sorted<T> {
    /// Adds an element, unless it is there.
    pub(super) fn insert(&mut self, element: T) {
        if let Err(place) = self.0.binary_search(&element) {
            if self.0.is_empty() {
                self.0.reserve_exact(1);
            }
            self.0.insert(place, element);
        }
    }

    /// Removes an element, if it is there.
    pub(super) fn remove(&mut self, element: &T) {
        if let Ok(place) = self.0.binary_search(element) {
            self.0.remove(place);
        }
    }

    /// The least element.
    pub(super) fn first(&self) -> Option<&T> {
        self.0.first()
    }

    /// Whether there is no element.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All elements, in order.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_in_order_and_there_once() {
        let mut set = Sorted::default();
        for element in [3, 1, 2, 3, 1] {
            set.insert(element);
        }
        assert_eq!((set.iter().copied().collect::<Vec<_>>(), set.first()), (vec![1, 2, 3], Some(&1)));
        set.remove(&1);
        set.remove(&7);
        assert_eq!(set.first(), Some(&2));
        set.remove(&2);
        set.remove(&3);
        assert!(set.is_empty() && set.first().is_none());
    }

    #[test]
    fn one_element_takes_the_room_of_one() {
        let mut set = Sorted::default();
        set.insert(1);
        assert_eq!(set.0.capacity(), 1);
    }
}
