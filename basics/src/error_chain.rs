//! Prints an error together with its sources, for people.

use std::{
    error::Error as StdError,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// The error and every source below it, on one line. A source whose text is already on the line is left out.
///
/// Sources come from other people's code. If one panics while it is printed, the line says so and the chain
/// ends there.
pub fn error_chain(error: &(dyn StdError + 'static)) -> String {
    let (mut text, mut source) = printed(error);
    while let Some(cause) = source {
        let (part, next) = printed(cause);
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        source = next;
    }
    text
}

fn printed<'a>(error: &'a (dyn StdError + 'static)) -> (String, Option<&'a (dyn StdError + 'static)>) {
    catch_unwind(AssertUnwindSafe(|| (error.to_string(), error.source())))
        .unwrap_or_else(|_| ("an error whose text cannot be told: it panics".to_owned(), None))
}

#[cfg(test)]
mod tests {
    use std::{fmt, io};

    use super::*;

    #[derive(Debug)]
    struct Outer(&'static str, io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl StdError for Outer {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.1)
        }
    }

    #[test]
    fn each_part_once() {
        let reset = || io::Error::other("reset");
        assert_eq!(error_chain(&Outer("read", reset())), "read: reset");
        assert_eq!(error_chain(&Outer("read: reset", reset())), "read: reset");
    }

    #[derive(Debug)]
    struct Unprintable;

    impl fmt::Display for Unprintable {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            // Unwinds like a panic, but without a message on the terminal.
            std::panic::resume_unwind(Box::new("no text"))
        }
    }

    impl StdError for Unprintable {}

    #[test]
    fn an_error_that_panics_is_named_as_such() {
        assert_eq!(error_chain(&Unprintable), "an error whose text cannot be told: it panics");
    }
}
