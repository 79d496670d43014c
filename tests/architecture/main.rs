//! The architecture: which crate may depend on which, that no modules depend on each other in a circle, that
//! every file exists that the page about the architecture names, that the links of all pages lead somewhere, that the
//! pages of the providers explain every reason that their machines tell, that locks are of one kind, and that the scripts
//! of `make test` run every test and report every failure.

#[cfg(test)]
mod circles;
#[cfg(test)]
mod crates;
#[cfg(test)]
mod lexer;
#[cfg(test)]
mod links;
#[cfg(test)]
mod locks;
#[cfg(test)]
mod modules;
#[cfg(test)]
mod no_circles;
#[cfg(test)]
mod page;
#[cfg(test)]
mod reasons;
#[cfg(test)]
mod runner;
