//! One field of a message, as described by its prost attribute.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Error, Expr, ExprLit, GenericArgument, Ident, Lit, Meta, Path, PathArguments, Token,
    Type, Visibility,
};

/// Names of the kinds of values in prost's attributes and in `dunlin_service::protobuf::field`.
const KINDS: [(&str, &str); 16] = [
    ("bool", "Bool"),
    ("int32", "Int32"),
    ("int64", "Int64"),
    ("uint32", "Uint32"),
    ("uint64", "Uint64"),
    ("sint32", "Sint32"),
    ("sint64", "Sint64"),
    ("fixed32", "Fixed32"),
    ("fixed64", "Fixed64"),
    ("sfixed32", "Sfixed32"),
    ("sfixed64", "Sfixed64"),
    ("float", "Float"),
    ("double", "Double"),
    ("string", "Text"),
    ("bytes", "Bytes"),
    ("message", "Nested"),
];

/// The label of a field: how often a value may occur.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Singular,
    Optional,
    Repeated,
    Packed,
}

impl Label {
    fn module(self) -> Ident {
        let name = match self {
            Self::Singular => "singular",
            Self::Optional => "optional",
            Self::Repeated => "repeated",
            Self::Packed => "packed",
        };
        Ident::new(name, Span::call_site())
    }
}

/// A field of a message.
pub(crate) struct Field {
    name: Ident,
    visibility: Visibility,
    docs: Vec<Attribute>,
    value: Type,
    pub(crate) number: u32,
    kind: Ident,
    /// The enum that defines its values.
    of: Option<Path>,
    label: Label,
}

impl Field {
    /// Parses a field; `None` if it is of a kind that is left to prost.
    pub(crate) fn of(field: &syn::Field) -> Result<Option<Self>, Error> {
        let Some(name) = field.ident.clone() else {
            return Ok(None);
        };
        let mut words = Vec::new();
        for attribute in &field.attrs {
            if attribute.path().is_ident("prost") {
                let parse = Punctuated::<Meta, Token![,]>::parse_terminated;
                words.extend(attribute.parse_args_with(parse)?);
            }
        }
        if words.is_empty() {
            let words =
                "missing attribute: a field of a message needs one of prost, such as #[prost(string, tag = \"1\")]";
            return Err(Error::new_spanned(&name, words));
        }
        Self::read(field, name, &words)
    }

    fn read(field: &syn::Field, name: Ident, words: &[Meta]) -> Result<Option<Self>, Error> {
        let (mut number, mut kind, mut label, mut packed) = (None, None, None, None);
        let mut of = None;
        for word in words {
            let Some(said) = word.path().get_ident().map(Ident::to_string) else {
                return Ok(None);
            };
            match said.as_str() {
                "tag" => number = Some(value(word)?),
                "optional" => label = Some(Label::Optional),
                "repeated" => label = Some(Label::Repeated),
                "packed" => packed = Some(value(word)? == "true"),
                "boxed" => {}
                "enumeration" => {
                    kind = Some("Enumeration");
                    of = Some(path(word)?);
                }
                // `Bytes` share memory and are left to prost.
                "bytes" if matches!(word, Meta::NameValue(_)) && value(word)? != "vec" => {
                    return Ok(None)
                }
                said => match KINDS.iter().find(|(prost, _)| *prost == said) {
                    Some((_, ours)) => kind = Some(ours),
                    None => return Ok(None),
                },
            }
        }
        let (Some(number), Some(kind)) = (number, kind) else {
            return Ok(None);
        };
        let number = number
            .parse()
            .map_err(|_| Error::new_spanned(&name, format!("invalid field number {number:?}")))?;
        let is_number = !matches!(kind, "Text" | "Bytes" | "Nested");
        let label = match label {
            Some(Label::Repeated) if packed.unwrap_or(is_number) => Label::Packed,
            Some(label) => label,
            // By prost's rules a message that is not repeated may be absent.
            None if kind == "Nested" => Label::Optional,
            None => Label::Singular,
        };
        let docs = field.attrs.iter();
        let docs = docs.filter(|attribute| attribute.path().is_ident("doc"));
        Ok(Some(Self {
            name,
            visibility: field.vis.clone(),
            docs: docs.cloned().collect(),
            value: match label {
                Label::Singular => field.ty.clone(),
                _ => argument(&field.ty)?,
            },
            number,
            kind: Ident::new(kind, Span::call_site()),
            of,
            label,
        }))
    }

    /// Whether its values are nested messages.
    pub(crate) fn is_nested(&self) -> bool {
        self.kind == "Nested"
    }

    /// Whether its values are parts of the bytes that a view was read from.
    pub(crate) fn is_lent(&self) -> bool {
        self.kind == "Text" || self.kind == "Bytes" || self.is_nested()
    }

    /// The declaration of the field in a view.
    pub(crate) fn in_view(&self) -> TokenStream {
        let value = &self.value;
        let lent = match self.kind.to_string().as_str() {
            "Text" => quote! { &'a str },
            "Bytes" => quote! { &'a [u8] },
            "Nested" => quote! { ::dunlin_service::protobuf::View<'a, #value> },
            _ => quote! { #value },
        };
        let whole = match self.label {
            Label::Singular => lent,
            Label::Optional => quote! { ::core::option::Option<#lent> },
            Label::Repeated | Label::Packed => quote! { ::std::vec::Vec<#lent> },
        };
        let (docs, visibility, name) = (&self.docs, &self.visibility, &self.name);
        quote! { #(#docs)* #visibility #name: #whole }
    }

    /// The field's initial value in a view.
    pub(crate) fn in_new_view(&self) -> TokenStream {
        let name = &self.name;
        let value = match (&self.of, self.label) {
            (Some(of), Label::Singular) => quote! {
                ::core::convert::Into::into(<#of as ::core::default::Default>::default())
            },
            _ => quote! { ::core::default::Default::default() },
        };
        quote! { #name: #value }
    }

    fn call(&self, function: &str) -> TokenStream {
        let (module, kind) = (self.label.module(), &self.kind);
        let of = self.of.iter();
        let function = Ident::new(function, Span::call_site());
        quote! {
            ::dunlin_service::protobuf::field::#module::#function
                ::<::dunlin_service::protobuf::field::#kind #(::<#of>)*, _>
        }
    }

    pub(crate) fn length(&self) -> TokenStream {
        let (call, name, number) = (self.call("length"), &self.name, self.number);
        quote! { #call(#number, &self.#name) }
    }

    pub(crate) fn put(&self) -> TokenStream {
        let (call, name, number) = (self.call("put"), &self.name, self.number);
        quote! { #call(#number, &self.#name, to) }
    }

    pub(crate) fn take(&self) -> TokenStream {
        let (call, name, number) = (self.call("take"), &self.name, self.number);
        quote! { #number => #call(&mut self.#name, key, from)? }
    }

    pub(crate) fn clear(&self) -> TokenStream {
        let (call, name) = (self.call("clear"), &self.name);
        quote! { #call(&mut self.#name) }
    }
}

/// The type argument of an `Option` or a `Vec`.
fn argument(whole: &Type) -> Result<Type, Error> {
    if let Type::Path(path) = whole {
        if let Some(PathArguments::AngleBracketed(arguments)) =
            path.path.segments.last().map(|last| &last.arguments)
        {
            if let Some(GenericArgument::Type(value)) = arguments.args.first() {
                return Ok(value.clone());
            }
        }
    }
    let words = "prost's attribute requires the type Option or Vec";
    Err(Error::new_spanned(whole, words))
}

/// Parses the path in `name = "path"` or `name(path)`.
fn path(word: &Meta) -> Result<Path, Error> {
    match word {
        Meta::List(list) => list.parse_args(),
        _ => syn::parse_str(&value(word)?),
    }
}

/// Parses the text in `name = "text"`.
fn value(word: &Meta) -> Result<String, Error> {
    match &word.require_name_value()?.value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Ok(text.value()),
        other => Err(Error::new_spanned(other, "expected a string")),
    }
}
