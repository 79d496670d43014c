//! The order of keys: numbers inside of keys compare by their value, and letters come after other characters.

use std::cmp::Ordering;

/// Sorts by key. The order is Go's, which is not total for all keys, so that the standard library's sort, which may panic then,
/// cannot be used.
pub(super) fn sorted<T>(entries: Vec<(&String, T)>) -> Vec<(&String, T)> {
    let keyed = entries.into_iter().map(|(key, value)| (key.chars().collect(), (key, value))).collect();
    merge_sort(keyed).into_iter().map(|(_, entry)| entry).collect()
}

fn merge_sort<T>(mut entries: Vec<(Vec<char>, T)>) -> Vec<(Vec<char>, T)> {
    if entries.len() < 2 {
        return entries;
    }
    let right = merge_sort(entries.split_off(entries.len() / 2));
    let left = merge_sort(entries);
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(first), Some(second)) = (left.peek(), right.peek()) {
        let takes_right = compare(&second.0, &first.0) == Ordering::Less;
        merged.extend(if takes_right { right.next() } else { left.next() });
    }
    merged.extend(left);
    merged.extend(right);
    merged
}

fn compare(a: &[char], b: &[char]) -> Ordering {
    let Some(at) = a.iter().zip(b).position(|(left, right)| left != right) else {
        return a.len().cmp(&b.len());
    };
    let (left, right) = (a[at], b[at]);
    match (left.is_alphabetic(), right.is_alphabetic()) {
        (true, true) => return left.cmp(&right),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // A zero after digits that are not zero is part of a larger number, and not a leading zero.
    let continues = (left == '0' || right == '0')
        && a[..at].iter().rev().take_while(|c| c.is_ascii_digit()).any(|digit| *digit != '0');
    let (left_value, left_end) = number(a, at, continues);
    let (right_value, right_end) = number(b, at, continues);
    left_value.cmp(&right_value).then(left_end.cmp(&right_end)).then(left.cmp(&right))
}

/// The value of the digits from `from` on, and where they end.
fn number(text: &[char], from: usize, continues: bool) -> (i64, usize) {
    let digits = text[from..].iter().map_while(|c| c.to_digit(10));
    digits.fold((i64::from(continues), from), |(value, end), digit| {
        (value.wrapping_mul(10).wrapping_add(i64::from(digit)), end + 1)
    })
}
