//! Tests of matching.
