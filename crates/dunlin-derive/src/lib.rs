//! The derive of `dunlin_service::protobuf::Message`, which is documented there. It reads the same attributes as
//! prost's derive (`#[prost(string, tag = "1")]`) and is used next to `prost::Message` on the same struct.
#![forbid(unsafe_code)]

mod field;
mod message;
mod view;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{parse_macro_input, Data, DeriveInput, Error, Fields};

use field::Field;

/// See `dunlin_service::protobuf::Message`.
#[proc_macro_derive(Message, attributes(prost, protobuf))]
pub fn derive_message(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    implement(&input)
        .unwrap_or_else(Error::into_compile_error)
        .into()
}

fn implement(input: &DeriveInput) -> Result<TokenStream, Error> {
    let Data::Struct(data) = &input.data else {
        let words =
            "only structs can be protobuf messages; enums of values and oneofs are parts of them";
        return Err(Error::new_spanned(&input.ident, words));
    };
    if !input.generics.params.is_empty() {
        let words = "protobuf messages cannot be generic";
        return Err(Error::new_spanned(&input.generics, words));
    }
    let fields = match &data.fields {
        Fields::Named(fields) => fields.named.iter().map(Field::of).collect(),
        Fields::Unit => Ok(Some(Vec::new())),
        Fields::Unnamed(_) => Ok(None),
    };
    let name = &input.ident;
    let Some(mut fields) = fields? else {
        // If one field is of a kind that is left to prost, the whole message is.
        return Ok(quote! { ::dunlin_service::protobuf::by_prost!(#name); });
    };
    // The order in which protobuf's own encoders write fields.
    fields.sort_by_key(|field| field.number);
    let view = view::name(input)?.map(|view| view::implement(input, &view, &fields));
    let (name, inline) = (quote! { #name }, quote! { #[inline] });
    let message = message::implement(&name, &TokenStream::new(), &inline, &fields);
    Ok(quote! { #message #view })
}
