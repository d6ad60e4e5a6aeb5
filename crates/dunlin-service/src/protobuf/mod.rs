//! Protobuf between slices: what [`codec::Protobuf`](crate::codec::Protobuf) makes of messages, by straight code for
//! each type.
//!
//! The messages are prost's. Its own derive writes and reads by way of `Buf`, for whatever memory stands behind it; a
//! call's message is one slice, and for that code of a message's own is several times shorter. `dunlin-build` derives
//! both; by hand it is
//!
//! ```
//! #[derive(Clone, PartialEq, prost::Message, dunlin_service::protobuf::Message)]
//! pub struct Greeting {
//!     #[prost(string, tag = "1")]
//!     pub words: String,
//! }
//! ```
//!
//! With `#[protobuf(view)]` behind it there is `GreetingView<'a>`, too, whose `words` are a `&'a str`: the message as
//! it stands in the bytes that it came in ([`View`]; `#[protobuf(view = "Name")]` names it otherwise). Messages that a
//! message with a view holds have views, too.
//!
//! The bytes are the same as prost's, and the same bytes are refused (`tests/protobuf`), but for one bound. A message
//! with a map, a oneof, a group, a field of `Bytes`, or proto2's required fields and defaults is left to prost as a
//! whole.
//!
//! Messages may stand within messages 100 deep, as with prost. Below one that is left to prost they are counted anew:
//! where prost alone refuses more than 100 there may be up to 200.

mod enumeration;
pub mod field;
mod wire;

pub use dunlin_derive::Message;
pub use wire::{Key, Malformed, Reader, Wire, Writer};

/// A message that is written into one slice.
pub trait Message: Default {
    /// Bytes of it.
    fn encoded_len(&self) -> usize;

    /// Writes it.
    ///
    /// # Panics
    /// When there is less room than [`Message::encoded_len`] says.
    fn encode(&self, to: &mut Writer<'_>);

    /// Makes it as if it was new; memory that it holds is kept.
    fn clear(&mut self);
}

/// A message that is read from one slice, which lives for `'a`. What has memory of its own is read from any.
pub trait Merge<'a>: Message {
    /// Reads what is left: fields that stand there are replaced or added to, as protobuf has it.
    ///
    /// # Errors
    /// When the bytes are no message of this type; it holds anything then.
    fn merge(&mut self, from: &mut Reader<'a>) -> Result<(), Malformed>;
}

/// A message that has a view.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no view",
    note = "put `#[protobuf(view)]` behind its derive of `dunlin_service::protobuf::Message`, or `.views()` into the \
            build script"
)]
pub trait Viewed: for<'a> Merge<'a> {
    /// The same fields; texts and bytes are parts of the slice that was read.
    type View<'a>: Merge<'a>;
}

/// A message as it stands in bytes that live for `'a`. Lists of it, and messages that hold themselves, have memory of
/// their own.
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

/// For messages of prost's that have no code of their own.
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

        // prost knows no views: the message itself.
        impl $crate::protobuf::Viewed for $message {
            type View<'a> = Self;
        }
    )+ };
}
#[doc(hidden)]
pub use crate::__protobuf_by_prost as by_prost;

// What `google/protobuf/*.proto` become.
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
