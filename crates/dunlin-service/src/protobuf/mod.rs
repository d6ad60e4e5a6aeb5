//! Protobuf between slices: [`codec::Protobuf`](crate::codec::Protobuf) encodes and decodes messages with code
//! generated for each type.
//!
//! The messages are prost's. prost's own derive goes through `Buf`, to support any kind of memory; a message of a call
//! is one slice, for which code generated for the message is several times shorter. `dunlin-build` derives both; by
//! hand it is
//!
//! ```
//! #[derive(Clone, PartialEq, prost::Message, dunlin_service::protobuf::Message)]
//! pub struct Greeting {
//!     #[prost(string, tag = "1")]
//!     pub words: String,
//! }
//! ```
//!
//! With `#[protobuf(view)]` after it there is also `GreetingView<'a>`, whose `words` are a `&'a str`: the message in
//! place, in the bytes that were received ([`View`]; `#[protobuf(view = "Name")]` sets another name). Messages nested
//! in a message with a view must have views, too.
//!
//! The bytes are the same as prost's, and the same inputs are refused (`tests/protobuf`), except for one limit. A
//! message with a map, a oneof, a group, a field of `Bytes`, or proto2's required fields and defaults is left to prost
//! as a whole.
//!
//! Messages may be nested 100 deep, as with prost. Below one that is left to prost the count starts anew: where prost
//! alone refuses more than 100 levels there may be up to 200.

mod enumeration;
pub mod field;
mod wire;

pub use dunlin_derive::Message;
pub use wire::{Key, Malformed, Reader, Wire, Writer};

/// A message that is encoded into one slice.
pub trait Message: Default {
    /// Number of bytes of the encoded message.
    fn encoded_len(&self) -> usize;

    /// Encodes the message.
    ///
    /// # Panics
    /// If there is less room than [`Message::encoded_len`] returns.
    fn encode(&self, to: &mut Writer<'_>);

    /// Resets the message to its initial state; memory that it holds is kept.
    fn clear(&mut self);
}

/// A message that is decoded from one slice, which lives for `'a`. A type with memory of its own can be decoded from
/// any slice.
pub trait Merge<'a>: Message {
    /// Decodes the rest of the slice: present fields are replaced or added to, by protobuf's rules.
    ///
    /// # Errors
    /// If the bytes are not a message of this type; its contents are then unspecified.
    fn merge(&mut self, from: &mut Reader<'a>) -> Result<(), Malformed>;
}

/// A message that has a view.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no view",
    note = "put `#[protobuf(view)]` behind its derive of `dunlin_service::protobuf::Message`, or `.views()` into the \
            build script"
)]
pub trait Viewed: for<'a> Merge<'a> {
    /// The same fields; texts and byte strings are parts of the slice that was read.
    type View<'a>: Merge<'a>;
}

/// A view of a message in bytes that live for `'a`. Lists, and recursive messages, allocate memory of their own.
pub type View<'a, M> = <M as Viewed>::View<'a>;

impl<M: Message> Message for Box<M> {
    fn encoded_len(&self) -> usize {
        self.as_ref().encoded_len()
    }

    fn encode(&self, to: &mut Writer<'_>) {
        self.as_ref().encode(to);
    }

    fn clear(&mut self) {
        self.as_mut().clear();
    }
}

impl<'a, M: Merge<'a>> Merge<'a> for Box<M> {
    fn merge(&mut self, from: &mut Reader<'a>) -> Result<(), Malformed> {
        self.as_mut().merge(from)
    }
}

impl<M: Viewed> Viewed for Box<M> {
    type View<'a> = Box<M::View<'a>>;
}

/// For messages of prost's without generated code of ours.
#[doc(hidden)]
#[macro_export]
macro_rules! __protobuf_by_prost {
    ($($message:ty),+ $(,)?) => { $(
        impl $crate::protobuf::Message for $message {
            fn encoded_len(&self) -> usize {
                $crate::private::prost::Message::encoded_len(self)
            }

            fn encode(&self, to: &mut $crate::protobuf::Writer<'_>) {
                let length = $crate::private::prost::Message::encoded_len(self);
                $crate::private::prost::Message::encode_raw(self, &mut to.room(length));
            }

            fn clear(&mut self) {
                $crate::private::prost::Message::clear(self);
            }
        }

        impl<'a> $crate::protobuf::Merge<'a> for $message {
            fn merge(
                &mut self,
                from: &mut $crate::protobuf::Reader<'a>,
            ) -> ::core::result::Result<(), $crate::protobuf::Malformed> {
                $crate::private::prost::Message::merge(self, from.rest())
                    .map_err($crate::protobuf::Malformed::by_prost)
            }
        }

        // prost has no views: the message itself is used.
        impl $crate::protobuf::Viewed for $message {
            type View<'a> = Self;
        }
    )+ };
}
#[doc(hidden)]
pub use crate::__protobuf_by_prost as by_prost;

// The types of `google/protobuf/*.proto`.
by_prost!((), bool, f32, f64, i32, i64, u32, u64, String, Vec<u8>);
by_prost!(
    prost_types::Any,
    prost_types::Duration,
    prost_types::FieldMask,
    prost_types::ListValue,
    prost_types::Struct,
    prost_types::Timestamp,
    prost_types::Value,
);
