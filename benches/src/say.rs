//! Messages for the person who waits.

#[expect(clippy::print_stderr, reason = "a program that talks to a person")]
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}
