//! Prints an error together with its sources, for people.

use std::{
    error::Error as StdError,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// The error and every source below it, on one line. A source whose text is already on the line is left out, and so is the value
/// that a reader of JSON did not expect: it may be a secret.
///
/// Sources come from other people's code. If one panics while it is printed, the line says so and the chain
/// ends there.
pub fn error_chain(error: &(dyn StdError + 'static)) -> String {
    let (mut text, mut source) = printed(error);
    let mut told = without_values(error);
    while let Some(cause) = source {
        let (part, next) = printed(cause);
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        told = told.or_else(|| without_values(cause));
        source = next;
    }
    match told {
        Some((said, told)) => text.replace(&said, &told),
        None => text,
    }
}

/// What a reader of JSON says of a value that does not fit, and the same without this value. `None` if it says nothing of a
/// value.
fn without_values(error: &(dyn StdError + 'static)) -> Option<(String, String)> {
    let error = error.downcast_ref::<serde_json::Error>().filter(|error| error.is_data())?;
    let said = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let (fault, place) = said.strip_suffix(&place).map_or((said.as_str(), ""), |fault| (fault, &place));
    let fault = match fault.split_once(": ").zip(fault.rsplit_once(", expected ")) {
        Some(((kind @ ("invalid type" | "invalid value"), met), (_, expected))) => {
            let met = met.split([' ', ',']).next().unwrap_or_default();
            format!("{kind}: {met}, expected {expected}")
        }
        _ if ["missing field ", "unknown field ", "duplicate field ", "invalid length "]
            .iter()
            .any(|begin| fault.starts_with(begin)) =>
        {
            fault.to_owned()
        }
        _ => "a value that does not fit".to_owned(),
    };
    let told = format!("{fault}{place}");
    Some((said, told))
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

    #[derive(Debug)]
    struct Undecodable(serde_json::Error);

    impl fmt::Display for Undecodable {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "cannot decode: {}", self.0)
        }
    }

    impl StdError for Undecodable {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.0)
        }
    }

    #[derive(Debug, serde::Deserialize)]
    #[allow(dead_code, reason = "only read")]
    struct Login {
        ports: Vec<u16>,
        kind: Kind,
    }

    #[derive(Debug, serde::Deserialize)]
    enum Kind {
        Known,
    }

    #[test]
    fn a_value_that_does_not_fit_is_not_told() {
        for (text, expected) in [
            (r#"{"ports":"hun, expected \"ter2"}"#, "invalid type: string, expected a sequence"),
            (r#"{"ports":[424242]}"#, "invalid value: integer, expected u16"),
            (r#"{"ports":null}"#, "invalid type: null, expected a sequence"),
            (r#"{"ports":[],"kind":"hunter2"}"#, "a value that does not fit"),
            (r#"{"ports":[]}"#, "missing field `kind`"),
            (r#"{"ports":[] hunter2"#, "expected `,` or `}`"),
        ] {
            let error = || serde_json::from_str::<Login>(text).expect_err("a fault");
            let expected = format!("{expected} at line 1 column {}", error().column());
            assert_eq!(error_chain(&error()), expected);
            assert_eq!(error_chain(&Undecodable(error())), format!("cannot decode: {expected}"));
        }
        let error =
            serde_json::from_value::<Login>(serde_json::json!({"ports": "hunter2"})).expect_err("a fault");
        assert_eq!(error_chain(&error), "invalid type: string, expected a sequence");
    }
}
