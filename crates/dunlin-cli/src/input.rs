//! Bounded reads of files and standard input, and parsers of sizes.

use std::io::{self, BufRead, Read};
use std::ops::RangeInclusive;

/// Everything, or `None` when it has more than `most` bytes; of those one is read, to know.
///
/// # Errors
/// The system's error.
pub fn read_at_most(from: impl Read, most: usize) -> io::Result<Option<Vec<u8>>> {
    // Allocated for a whole secret from the start: growing would leave copies of parts of it in memory.
    let mut bytes = Vec::with_capacity(most.min(4095) + 1);
    from.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= most).then_some(bytes))
}

/// The next line without its end; `None` at the end, and when the line has more than `most` bytes.
///
/// # Errors
/// The system's error.
pub fn line_at_most(from: &mut impl BufRead, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    from.take(most as u64 + 1).read_until(b'\n', &mut line)?;
    Ok(match line.pop() {
        Some(b'\n') => Some(line),
        _ => None,
    })
}

/// Reads a number of bytes in this range, plain or in binary units: `4096`, `4K`, `4KiB`, `1M`, `1GiB`.
pub fn parse_bytes(
    range: RangeInclusive<u32>,
) -> impl Fn(&str) -> Result<u32, String> + Clone + Send + Sync + 'static {
    let end = match *range.end() {
        u32::MAX => u64::MAX,
        end => end.into(),
    };
    let parse = parse_long_bytes((*range.start()).into()..=end);
    let start = *range.start();
    move |text| {
        parse(text).and_then(|bytes| {
            u32::try_from(bytes).map_err(|_| format!("must be at least {start} and below 4GiB"))
        })
    }
}

/// The same for more than 4 GiB, with T for TiB.
pub fn parse_long_bytes(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let digits = text.find(|c: char| !c.is_ascii_digit());
        let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
        let shift = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kib" => 10,
            "m" | "mib" => 20,
            "g" | "gib" => 30,
            "t" | "tib" => 40,
            _ => return Err("write bytes as a number, or with K, M or G (KiB, MiB, GiB)".into()),
        };
        let number = number.parse::<u64>().map_err(|error| error.to_string())?;
        let bytes = number.checked_mul(1 << shift);
        match bytes.filter(|bytes| range.contains(bytes)) {
            Some(bytes) => Ok(bytes),
            None if *range.end() == u64::MAX => Err(format!("must be at least {}", range.start())),
            None => Err(format!("must be from {} to {}", range.start(), range.end())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_binary_units() {
        let parse = parse_bytes(4..=1 << 26);
        for (text, bytes) in [
            ("4", 4),
            ("64b", 64),
            ("4k", 4096),
            ("4KiB", 4096),
            ("1M", 1 << 20),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "3",
            "1G",
            "65MiB",
            "-1",
            "1.5K",
            "1kB/s",
            "K",
            "9999999999999999999G",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse_bytes(1..=u32::MAX)("3GiB"), Ok(3 << 30));
        assert!(parse_bytes(1..=u32::MAX)("4GiB").is_err());
        assert_eq!(parse_long_bytes(1..=u64::MAX)("3TiB"), Ok(3 << 40));
    }

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
