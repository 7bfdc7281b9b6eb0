//! A macro that gives a type a name.

use proc_macro::{TokenStream, TokenTree};

/// Adds `NAME` to a struct.
#[proc_macro_derive(Named)]
pub fn named(input: TokenStream) -> TokenStream {
    let mut tokens = input.into_iter();
    while let Some(token) = tokens.next() {
        if matches!(&token, TokenTree::Ident(i) if i.to_string() == "struct") {
            let name = tokens.next().expect("a name").to_string();
            return format!("impl {name} {{ pub const NAME: &'static str = \"{name}\"; }}")
                .parse()
                .unwrap();
        }
    }
    panic!("not a struct")
}
