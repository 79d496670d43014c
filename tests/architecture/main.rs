//! The shape of the tree: which crate may depend on which, which modules know nothing of clouds and Nodes, and that no
//! modules depend on each other in a circle.

#[cfg(test)]
mod circles;
#[cfg(test)]
mod crates;
#[cfg(test)]
mod lexer;
#[cfg(test)]
mod machinery;
#[cfg(test)]
mod modules;
#[cfg(test)]
mod no_circles;
