//! The shape of the tree: which crate may depend on which, that no modules depend on each other in a circle, and that the page
//! about it names what is there.

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
#[cfg(test)]
mod page;
