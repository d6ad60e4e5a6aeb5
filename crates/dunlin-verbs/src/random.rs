//! Random numbers from the system's generator, for values that must not be guessable: keys, identifiers, first sequence
//! numbers.

use std::io;

use rustix::io::Errno;
use rustix::rand::{getrandom, GetRandomFlags};

/// Fills `bytes` with random bytes.
///
/// # Errors
/// The system's error if it has no generator.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match getrandom(&mut *rest, GetRandomFlags::empty()) {
            Ok(filled) => rest = &mut rest[filled..],
            // Before the generator is ready, or for more than 256 bytes.
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns a random number.
///
/// # Errors
/// As for [`fill`].
pub fn number() -> io::Result<u64> {
    let mut bytes = [0; 8];
    fill(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_filled_whatever_the_length() {
        for length in [0, 1, 7, 256, 257, 100_000] {
            let mut bytes = vec![0; length];
            fill(&mut bytes).unwrap();
            // The probability that 64 bytes in a row are all zero is negligible.
            assert!(bytes
                .chunks_exact(64)
                .all(|some| some.iter().any(|byte| *byte != 0)));
        }
        assert_ne!(number().unwrap(), number().unwrap());
    }
}
