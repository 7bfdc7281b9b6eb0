//! A library for Rust.

pub use inner::double;
