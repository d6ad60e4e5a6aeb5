//! Generates the encoding and decoding of a struct: a message, or the view of one.

use proc_macro2::TokenStream;
use quote::quote;

use crate::field::Field;

/// `generics` are those of the implementation for `name`; `merge` is the inline attribute of its decoder.
pub(crate) fn implement(
    name: &TokenStream,
    generics: &TokenStream,
    merge: &TokenStream,
    fields: &[Field],
) -> TokenStream {
    let lengths = fields.iter().map(Field::length);
    let puts = fields.iter().map(Field::put);
    let takes = fields.iter().map(Field::take);
    let clears = fields.iter().map(Field::clear);
    quote! {
        impl #generics ::dunlin_service::protobuf::Message for #name {
            #[inline]
            fn encoded_len(&self) -> usize {
                0 #(+ #lengths)*
            }

            #[inline]
            fn encode(&self, to: &mut ::dunlin_service::protobuf::Writer<'_>) {
                #(#puts;)*
            }

            #[inline]
            fn clear(&mut self) {
                #(#clears;)*
            }
        }

        impl<'a> ::dunlin_service::protobuf::Merge<'a> for #name {
            #merge
            fn merge(
                &mut self,
                from: &mut ::dunlin_service::protobuf::Reader<'a>,
            ) -> ::core::result::Result<(), ::dunlin_service::protobuf::Malformed> {
                while !from.is_empty() {
                    let key = from.key()?;
                    match key.number() {
                        #(#takes,)*
                        _ => from.skip(key)?,
                    }
                }
                ::core::result::Result::Ok(())
            }
        }
    }
}
