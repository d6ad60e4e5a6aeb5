//! The view of a message: a struct with the same fields, whose texts and byte strings are parts of the slice that was
//! read.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Attribute, DeriveInput, Error, Ident, LitStr};

use crate::field::Field;
use crate::message;

/// The requested name of the view: `#[protobuf(view)]`, `#[protobuf(view = "Name")]`.
pub(crate) fn name(input: &DeriveInput) -> Result<Option<Ident>, Error> {
    let mut name = None;
    for attribute in &input.attrs {
        if attribute.path().is_ident("protobuf") {
            name = Some(read(attribute, &input.ident)?);
        }
    }
    Ok(name)
}

fn read(attribute: &Attribute, message: &Ident) -> Result<Ident, Error> {
    let mut name = format_ident!("{message}View");
    attribute.parse_nested_meta(|word| {
        if !word.path.is_ident("view") {
            let words = "unknown attribute: expected `view` or `view = \"Name\"`";
            return Err(Error::new(word.path.span(), words));
        }
        if word.input.peek(syn::Token![=]) {
            name = word.value()?.parse::<LitStr>()?.parse()?;
        }
        Ok(())
    })?;
    Ok(name)
}

/// Generates the struct of the view, and its implementations.
pub(crate) fn implement(input: &DeriveInput, view: &Ident, fields: &[Field]) -> TokenStream {
    let (message, visibility) = (&input.ident, &input.vis);
    let declarations = fields.iter().map(Field::in_view);
    let defaults = fields.iter().map(Field::in_new_view);
    let about = format!("[`{message}`] as it stands in the bytes that it came in.");
    // A view that has only numbers copies them all, and borrows nothing.
    let generics = match fields.iter().any(Field::is_lent) {
        true => quote! { <'a> },
        false => TokenStream::new(),
    };
    // A view is usually read into a local variable that the next line uses: out of line it would go through memory and
    // wait for the stores. One with nested messages is as large as they are, so inlining it is left to the compiler.
    let inline = match fields.iter().any(Field::is_nested) {
        true => quote! { #[inline] },
        false => quote! { #[inline(always)] },
    };
    let name = quote! { #view #generics };
    let implementation = message::implement(&name, &generics, &inline, fields);
    quote! {
        #[doc = #about]
        #[derive(Clone, Debug, PartialEq)]
        #visibility struct #view #generics {
            #(#declarations,)*
        }

        impl #generics ::core::default::Default for #name {
            fn default() -> Self {
                Self { #(#defaults,)* }
            }
        }

        #implementation

        impl ::dunlin_service::protobuf::Viewed for #message {
            type View<'a> = #view #generics;
        }

        impl #generics ::dunlin_service::codec::Represents<#message> for #view #generics {}
    }
}
