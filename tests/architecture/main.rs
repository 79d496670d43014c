//! The shape of the tree: which crate may depend on which, and that no modules depend on each other in a circle.

#[cfg(test)]
mod circles;
#[cfg(test)]
mod crates;
#[cfg(test)]
mod lexer;
#[cfg(test)]
mod modules;
#[cfg(test)]
mod no_circles;
