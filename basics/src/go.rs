//! Values as Go programs parse and print them, in flags, configuration files and output.

mod boolean;
mod duration;
mod float;
mod integer;
mod quoting;

pub use boolean::parse_bool;
pub use duration::{format_duration, parse_duration};
pub use float::{format_float, parse_float};
pub use integer::{parse_int, parse_int32, parse_uint31};
pub use quoting::quoted;

/// Why a text is not a number or boolean, in the words of Go's `strconv`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("strconv.{function}: parsing {}: {fault}", quoted(text))]
pub struct NumError {
    function: &'static str,
    text: String,
    fault: &'static str,
}

impl NumError {
    fn syntax(function: &'static str, text: &str) -> Self {
        Self { function, text: text.to_owned(), fault: "invalid syntax" }
    }

    fn range(function: &'static str, text: &str) -> Self {
        Self { function, text: text.to_owned(), fault: "value out of range" }
    }
}
