//! The EPL front end: text to a syntax tree ([`parser`]), and the tree onto a
//! [`Plan`](crate::plan::Plan).

mod ast;
mod parser;
mod suggest;
mod token;

#[cfg(test)]
mod tests;

pub use parser::parse;
