//! The view of a message: a struct with the same fields, whose texts and bytes are parts of the slice that was read.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Attribute, DeriveInput, Error, Ident, LitStr};

use crate::field::Field;
use crate::message;

/// The name of the view that is asked for: `#[protobuf(view)]`, `#[protobuf(view = "Name")]`.
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
            let words = "there is `view`, and `view = \"Name\"`, and nothing else";
            return Err(Error::new(word.path.span(), words));
        }
        if word.input.peek(syn::Token![=]) {
            name = word.value()?.parse::<LitStr>()?.parse()?;
        }
        Ok(())
    })?;
    Ok(name)
}

/// The struct, and what makes it the view of its message.
pub(crate) fn implement(input: &DeriveInput, view: &Ident, fields: &[Field]) -> TokenStream {
    let (message, visibility) = (&input.ident, &input.vis);
    let declarations = fields.iter().map(Field::in_view);
    let defaults = fields.iter().map(Field::in_new_view);
    let about = format!("[`{message}`] as it stands in the bytes that it came in.");
    // One of numbers has copies of them all.
    let generics = match fields.iter().any(Field::is_lent) {
        true => quote! { <'a> },
        false => TokenStream::new(),
    };
    // A view is mostly read into a place of its own that is looked at by the next line: where it goes by way of memory
    // that waits for the stores. One that holds others is as large as they are.
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
