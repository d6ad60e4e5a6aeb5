//! How messages become bytes: protobuf, postcard, or bytes as they are.

/// Makes messages of type `T` bytes.
pub trait Encode<T: ?Sized>: 'static {
    /// Bytes of the message.
    fn encoded_len(message: &T) -> usize;

    /// Writes the message; `target` has as many bytes as [`Encode::encoded_len`] says.
    fn encode(message: &T, target: &mut [u8]);

    /// Appends the message.
    #[inline]
    fn append(message: &T, target: &mut Vec<u8>) {
        let before = target.len();
        target.resize(before + Self::encoded_len(message), 0);
        Self::encode(message, &mut target[before..]);
    }
}

/// Makes messages of type `T` bytes, and the other way round.
///
/// Implement it for another format: a type without values, named in `service!` or by the build script.
pub trait Codec<T>: Encode<T> {
    /// Reads a message into a place that held another, whose memory may be used again. After an error the place holds
    /// anything.
    ///
    /// # Errors
    /// When the bytes are no such message.
    fn decode_into(place: &mut T, bytes: &[u8]) -> Result<(), DecodeError>;

    /// Makes the place as if it was new; memory that it holds may be kept.
    fn clear(place: &mut T);
}

/// A codec whose messages of type `T` can be read where they stand: texts and bytes of a view are those of the bytes
/// that it was read from.
pub trait Views<T>: Codec<T> {
    /// What is lent instead of a message.
    type View<'a>;

    /// Reads a message.
    ///
    /// # Errors
    /// When the bytes are no such message.
    fn view(bytes: &[u8]) -> Result<Self::View<'_>, DecodeError>;
}

/// What may be sent where a message of type `T` is expected: one itself, or a view of one. The bytes are the same.
pub trait Represents<T> {}

impl<T> Represents<T> for T {}

/// What the codec `C` makes bytes where a message of type `T` is expected.
pub trait FormOf<T, C> {
    /// As [`Encode::encoded_len`].
    fn encoded_len(&self) -> usize;

    /// As [`Encode::encode`].
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

/// Bytes that are no message of the type that was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(Box<str>);

impl DecodeError {
    /// With the words of the codec.
    pub fn new(words: impl Into<Box<str>>) -> Self {
        Self(words.into())
    }
}

#[cfg(any(feature = "prost", feature = "postcard"))]
#[cold]
fn in_words(error: impl std::fmt::Display) -> DecodeError {
    DecodeError::new(error.to_string())
}

/// Protobuf, by code of each message's own: see [`crate::protobuf`].
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

    // In line, so that the view is nowhere but in registers.
    #[inline(always)]
    fn view(bytes: &[u8]) -> Result<Self::View<'_>, DecodeError> {
        let mut view = Self::View::default();
        let read =
            crate::protobuf::Merge::merge(&mut view, &mut crate::protobuf::Reader::new(bytes));
        read.map(|()| view).map_err(in_words)
    }
}

/// Protobuf, by prost: for messages of other crates, which have no code of their own. The bytes are the same.
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

/// Types with serde's traits, as postcard writes them: short, and without names or tags, so both sides must have the
/// same types.
///
/// A type that holds itself (`struct Tree { children: Vec<Tree> }`) is not for peers that are not trusted: postcard
/// reads it by recursion as deep as the bytes say, and some thousands of them, one in the other, overflow the stack,
/// which ends the process. Protobuf's codecs refuse more than 100.
#[cfg(feature = "postcard")]
#[derive(Clone, Copy, Debug)]
pub struct Postcard;

#[cfg(feature = "postcard")]
impl<T: serde::Serialize> Encode<T> for Postcard {
    fn encoded_len(message: &T) -> usize {
        // Only an implementation of `Serialize` of the user's own can fail; its message is empty then, and is refused
        // by who decodes it.
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
            let words = format!("{} bytes behind the message", rest.len());
            return Err(DecodeError::new(words));
        }
        *place = message;
        Ok(())
    }

    fn clear(place: &mut T) {
        *place = T::default();
    }
}

/// Bytes as they are.
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
