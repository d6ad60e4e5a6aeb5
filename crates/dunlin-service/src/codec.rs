//! Encodings of messages: protobuf, postcard, or raw bytes.

/// Encodes messages of type `T`.
pub trait Encode<T: ?Sized>: 'static {
    /// Number of bytes of the encoded message.
    fn encoded_len(message: &T) -> usize;

    /// Encodes the message; the length of `target` must be what [`Encode::encoded_len`] returns.
    fn encode(message: &T, target: &mut [u8]);

    /// Appends the encoded message.
    #[inline]
    fn append(message: &T, target: &mut Vec<u8>) {
        let before = target.len();
        target.resize(before + Self::encoded_len(message), 0);
        Self::encode(message, &mut target[before..]);
    }
}

/// Encodes and decodes messages of type `T`.
///
/// Implement it for another format, on a type without values that is named in `service!` or by the build script.
pub trait Codec<T>: Encode<T> {
    /// Decodes a message into an existing one, whose memory may be reused. After an error its contents are unspecified.
    ///
    /// # Errors
    /// If the bytes are not an encoded message.
    fn decode_into(place: &mut T, bytes: &[u8]) -> Result<(), DecodeError>;

    /// Resets the message to its initial state; memory that it holds may be kept.
    fn clear(place: &mut T);
}

/// A codec whose messages of type `T` can be read in place: texts and byte strings of a view are parts of the bytes
/// that it was read from.
pub trait Views<T>: Codec<T> {
    /// The view that is lent instead of a message.
    type View<'a>;

    /// Reads a message in place.
    ///
    /// # Errors
    /// If the bytes are not an encoded message.
    fn view(bytes: &[u8]) -> Result<Self::View<'_>, DecodeError>;
}

/// Implemented by types that may be sent where a message of type `T` is expected: `T` itself, or a view of it. The
/// bytes are the same.
pub trait Represents<T> {}

impl<T> Represents<T> for T {}

/// A value that the codec `C` encodes where a message of type `T` is expected.
pub trait FormOf<T, C> {
    /// See [`Encode::encoded_len`].
    fn encoded_len(&self) -> usize;

    /// See [`Encode::encode`].
    fn encode(&self, target: &mut [u8]);
}

impl<V: Represents<T> + ?Sized, T, C: Encode<V>> FormOf<T, C> for V {
    #[inline]
    fn encoded_len(&self) -> usize {
        C::encoded_len(self)
    }

    #[inline]
    fn encode(&self, target: &mut [u8]) {
        C::encode(self, target);
    }
}

/// An error: the bytes are not a message of the expected type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(Box<str>);

impl DecodeError {
    /// Creates an error with the codec's description.
    pub fn new(words: impl Into<Box<str>>) -> Self {
        Self(words.into())
    }
}

#[cfg(any(feature = "prost", feature = "postcard"))]
#[cold]
fn in_words(error: impl std::fmt::Display) -> DecodeError {
    DecodeError::new(error.to_string())
}

/// Protobuf, with generated code for each message: see [`crate::protobuf`].
#[cfg(feature = "prost")]
#[derive(Clone, Copy, Debug)]
pub struct Protobuf;

#[cfg(feature = "prost")]
impl<T: crate::protobuf::Message> Encode<T> for Protobuf {
    #[inline]
    fn encoded_len(message: &T) -> usize {
        message.encoded_len()
    }

    #[inline]
    fn encode(message: &T, target: &mut [u8]) {
        message.encode(&mut crate::protobuf::Writer::new(target));
    }
}

#[cfg(feature = "prost")]
impl<T: for<'a> crate::protobuf::Merge<'a>> Codec<T> for Protobuf {
    #[inline]
    fn decode_into(place: &mut T, bytes: &[u8]) -> Result<(), DecodeError> {
        place.clear();
        place
            .merge(&mut crate::protobuf::Reader::new(bytes))
            .map_err(in_words)
    }

    #[inline]
    fn clear(place: &mut T) {
        place.clear();
    }
}

#[cfg(feature = "prost")]
impl<T: crate::protobuf::Viewed> Views<T> for Protobuf {
    type View<'a> = crate::protobuf::View<'a, T>;

    // Inlined, so that the view is kept in registers.
    #[inline(always)]
    fn view(bytes: &[u8]) -> Result<Self::View<'_>, DecodeError> {
        let mut view = Self::View::default();
        let read =
            crate::protobuf::Merge::merge(&mut view, &mut crate::protobuf::Reader::new(bytes));
        read.map(|()| view).map_err(in_words)
    }
}

/// Protobuf through prost, for messages of other crates, which have no generated code of ours. The bytes are the same.
#[cfg(feature = "prost")]
#[derive(Clone, Copy, Debug)]
pub struct Prost;

#[cfg(feature = "prost")]
impl<T: prost::Message> Encode<T> for Prost {
    #[inline]
    fn encoded_len(message: &T) -> usize {
        message.encoded_len()
    }

    #[inline]
    fn encode(message: &T, mut target: &mut [u8]) {
        message.encode_raw(&mut target);
    }

    #[inline]
    fn append(message: &T, target: &mut Vec<u8>) {
        message.encode_raw(target);
    }
}

#[cfg(feature = "prost")]
impl<T: prost::Message + Default> Codec<T> for Prost {
    #[inline]
    fn decode_into(place: &mut T, bytes: &[u8]) -> Result<(), DecodeError> {
        place.clear();
        place.merge(bytes).map_err(in_words)
    }

    #[inline]
    fn clear(place: &mut T) {
        place.clear();
    }
}

/// Types that implement serde's traits, encoded by postcard: compact, and without names or tags, so both sides must
/// have the same types.
///
/// Recursive types (`struct Tree { children: Vec<Tree> }`) must not be used with untrusted peers: postcard decodes them
/// by recursion, as deep as the bytes demand, and some thousands of levels overflow the stack, which ends the process.
/// Protobuf's codecs refuse more than 100 levels.
#[cfg(feature = "postcard")]
#[derive(Clone, Copy, Debug)]
pub struct Postcard;

#[cfg(feature = "postcard")]
impl<T: serde::Serialize> Encode<T> for Postcard {
    fn encoded_len(message: &T) -> usize {
        // Only a user's own implementation of `Serialize` can fail; its message is then empty and is refused by the
        // decoder.
        postcard::experimental::serialized_size(message).unwrap_or(0)
    }

    fn encode(message: &T, target: &mut [u8]) {
        let _ = postcard::to_slice(message, target);
    }
}

#[cfg(feature = "postcard")]
impl<T: serde::Serialize + serde::de::DeserializeOwned + Default> Codec<T> for Postcard {
    fn decode_into(place: &mut T, bytes: &[u8]) -> Result<(), DecodeError> {
        let (message, rest) = postcard::take_from_bytes(bytes).map_err(in_words)?;
        if !rest.is_empty() {
            let words = format!("{} trailing bytes after the message", rest.len());
            return Err(DecodeError::new(words));
        }
        *place = message;
        Ok(())
    }

    fn clear(place: &mut T) {
        *place = T::default();
    }
}

/// Raw bytes.
#[derive(Clone, Copy, Debug)]
pub struct Raw;

impl<T: AsRef<[u8]> + ?Sized> Encode<T> for Raw {
    #[inline]
    fn encoded_len(message: &T) -> usize {
        message.as_ref().len()
    }

    #[inline]
    fn encode(message: &T, target: &mut [u8]) {
        target.copy_from_slice(message.as_ref());
    }
}

impl Codec<Vec<u8>> for Raw {
    fn decode_into(place: &mut Vec<u8>, bytes: &[u8]) -> Result<(), DecodeError> {
        place.clear();
        place.extend_from_slice(bytes);
        Ok(())
    }

    fn clear(place: &mut Vec<u8>) {
        place.clear();
    }
}

impl Views<Vec<u8>> for Raw {
    type View<'a> = &'a [u8];

    #[inline]
    fn view(bytes: &[u8]) -> Result<&[u8], DecodeError> {
        Ok(bytes)
    }
}

impl Represents<Vec<u8>> for [u8] {}
impl Represents<Vec<u8>> for &[u8] {}
