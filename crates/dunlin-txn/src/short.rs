//! Byte strings that are copied often and are mostly short: keys and values of transactions.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// Number of bytes stored in the value itself, which is then as long as an `Arc<[u8]>` and a word.
const INLINE_BYTES: usize = 22;

/// Immutable bytes. Copies of long ones share them; copies of short ones are cheap.
#[derive(Clone)]
pub(crate) struct ShortBytes(Place);

#[derive(Clone)]
enum Place {
    Inline {
        length: u8,
        bytes: [u8; INLINE_BYTES],
    },
    Shared(Arc<[u8]>),
}

impl ShortBytes {
    fn inline(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; INLINE_BYTES];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        let length = from.len() as u8;
        Some(Self(Place::Inline { length, bytes }))
    }
}

impl From<&[u8]> for ShortBytes {
    #[inline]
    fn from(bytes: &[u8]) -> Self {
        Self::inline(bytes).unwrap_or_else(|| Self(Place::Shared(bytes.into())))
    }
}

impl From<Vec<u8>> for ShortBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::inline(&bytes).unwrap_or_else(|| Self(Place::Shared(bytes.into())))
    }
}

impl Deref for ShortBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Place::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Place::Shared(bytes) => bytes,
        }
    }
}

impl PartialEq for ShortBytes {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for ShortBytes {}

impl PartialOrd for ShortBytes {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ShortBytes {
    #[inline]
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for ShortBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::hash_map::DefaultHasher;

    fn hashed(of: &impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        of.hash(&mut hasher);
        hasher.finish()
    }

    proptest! {
        #[test]
        fn they_are_as_the_slice_is(
            a in prop::collection::vec(any::<u8>(), 0..40),
            b in prop::collection::vec(0..2_u8, 0..40),
        ) {
            let (one, other) = (ShortBytes::from(&a[..]), ShortBytes::from(b.clone()));
            prop_assert_eq!(&*one, &a[..]);
            prop_assert_eq!(&*other.clone(), &b[..]);
            prop_assert_eq!(one.cmp(&other), a[..].cmp(&b[..]));
            prop_assert_eq!(one == other, a == b);
            prop_assert_eq!(hashed(&one), hashed(&&a[..]));
        }
    }
}
