//! Variable-length numbers as in protobuf: seven bits a byte, the lowest first.

/// Appends a number.
pub(crate) fn put(target: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        target.push(value as u8 | 0x80);
        value >>= 7;
    }
    target.push(value as u8);
}

/// Number of bytes of an encoded number.
#[inline]
pub(crate) const fn length(value: u64) -> usize {
    ((value | 1).ilog2() as usize * 9 + 73) / 64
}

/// Reads bytes received from a peer, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// Reads a number; `None` if it is truncated, or longer than 64 bits.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    #[inline]
    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Reads bytes that are prefixed by their length.
    pub(crate) fn counted(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.bytes(length)
    }

    pub(crate) fn words(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.counted()?).ok()
    }
}

/// Appends bytes, prefixed by their length.
pub(crate) fn put_counted(target: &mut Vec<u8>, bytes: &[u8]) {
    put(target, bytes.len() as u64);
    target.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back_and_anything_is_read_without_harm(value: u64, any: Vec<u8>) {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            prop_assert_eq!(bytes.len(), length(value));
            let mut reader = Reader(&bytes);
            prop_assert_eq!(reader.number(), Some(value));
            prop_assert!(reader.is_empty());
            let mut reader = Reader(&any);
            while !reader.is_empty() && reader.counted().is_some() {}
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_is_none() {
        let mut longest = [0xff; 10];
        longest[9] = 1;
        assert_eq!(Reader(&longest).number(), Some(u64::MAX));
        longest[9] = 2;
        assert_eq!(Reader(&longest).number(), None);
    }
}
