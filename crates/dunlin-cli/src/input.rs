//! What comes from files and standard input: read no further than it may be long.

use std::io::{self, BufRead, Read};

/// Everything, or `None` when it has more than `most` bytes; of those one is read, to know.
///
/// # Errors
/// What the system says.
pub fn read_at_most(from: impl Read, most: usize) -> io::Result<Option<Vec<u8>>> {
    // Room for a secret from the start: growing would leave parts of it behind.
    let mut bytes = Vec::with_capacity(most.min(4095) + 1);
    from.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= most).then_some(bytes))
}

/// The next line without its end; `None` at the end, and when the line has more than `most` bytes.
///
/// # Errors
/// What the system says.
pub fn line_at_most(from: &mut impl BufRead, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    from.take(most as u64 + 1).read_until(b'\n', &mut line)?;
    Ok(match line.pop() {
        Some(b'\n') => Some(line),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_not_read() {
        assert_eq!(
            read_at_most(&b"1234"[..], 4).unwrap(),
            Some(b"1234".to_vec())
        );
        let mut from = &b"123456789"[..];
        assert_eq!(read_at_most(&mut from, 4).unwrap(), None);
        assert_eq!(from, b"6789");
        assert_eq!(read_at_most(io::repeat(0), 1 << 20).unwrap(), None);
    }

    #[test]
    fn lines_end() {
        let mut from = &b"one\ntwo\nthree"[..];
        assert_eq!(line_at_most(&mut from, 3).unwrap(), Some(b"one".to_vec()));
        assert_eq!(line_at_most(&mut from, 2).unwrap(), None);
        let mut endless = io::BufReader::new(io::repeat(0));
        assert_eq!(line_at_most(&mut endless, 1 << 20).unwrap(), None);
    }
}
