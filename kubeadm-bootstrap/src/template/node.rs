//! A template that has been read.

use super::expression::Expression;

/// Text, and what is done between texts.
pub(super) enum Node {
    Text(String),
    Output(Expression),
    Condition {
        /// `with`: inside, the dot is the value.
        rebinds: bool,
        condition: Expression,
        then: Vec<Self>,
        otherwise: Vec<Self>,
    },
}
