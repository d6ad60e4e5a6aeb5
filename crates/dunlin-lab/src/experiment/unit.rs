//! Quantities with their units: `10us`, `4KiB`, `1%`, `100Gbps`, `2M/s`.

use std::time::Duration;

/// A dimension: its units, each with its value in base units. The base unit is the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dimension {
    /// Its name in messages.
    pub(super) name: &'static str,
    pub(super) units: &'static [(&'static str, f64)],
    /// Whether a number without a unit is in the base unit; zero never needs one.
    pub(super) bare: bool,
}

/// Time, in nanoseconds.
pub(super) const TIME: Dimension = Dimension {
    name: "a time",
    units: &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)],
    bare: false,
};

/// Sizes, in bytes.
pub(super) const BYTES: Dimension = Dimension {
    name: "a size",
    units: &[
        ("B", 1.0),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
    ],
    bare: true,
};

/// Shares, from 0 to 1.
pub(super) const SHARE: Dimension = Dimension {
    name: "a share",
    units: &[("", 1.0), ("%", 0.01)],
    bare: true,
};

/// Bandwidth, in gigabits per second.
pub(super) const BANDWIDTH: Dimension = Dimension {
    name: "a bandwidth",
    units: &[("Gbps", 1.0), ("Mbps", 1e-3)],
    bare: false,
};

/// Rates, in calls per second.
pub(super) const RATE: Dimension = Dimension {
    name: "a rate",
    units: &[("/s", 1.0), ("k/s", 1e3), ("M/s", 1e6)],
    bare: true,
};

/// Parses a time with its unit, as in files.
///
/// # Errors
/// When it is malformed.
pub fn time(text: &str) -> Result<Duration, String> {
    let nanoseconds = TIME.parse(text).filter(|time| *time >= 0.0);
    let time = nanoseconds.map(|time| Duration::from_nanos(time.round() as u64));
    time.ok_or_else(|| format!("it must be {}", TIME.words()))
}

impl Dimension {
    /// The units, for messages.
    pub(super) fn words(&self) -> String {
        let units: Vec<&str> = self.units.iter().map(|unit| unit.0).collect();
        let units: Vec<&str> = units.into_iter().filter(|unit| !unit.is_empty()).collect();
        let unit = if self.bare { ", or a number" } else { "" };
        format!("{} in {}{unit}", self.name, units.join(", "))
    }

    /// Parses a quantity written as text.
    pub(super) fn parse(&self, text: &str) -> Option<f64> {
        let text = text.trim();
        let begin = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '_')));
        let (number, unit) = text.split_at(begin.unwrap_or(text.len()));
        let number: f64 = number.replace('_', "").parse().ok()?;
        let unit = unit.trim_start();
        if unit.is_empty() {
            return self.number(number);
        }
        let found = self.units.iter().find(|(name, _)| *name == unit);
        found.map(|(_, factor)| number * factor)
    }

    /// Converts a number without a unit.
    pub(super) fn number(&self, number: f64) -> Option<f64> {
        (self.bare || number == 0.0).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_units() {
        assert_eq!(TIME.parse("10us"), Some(10_000.0));
        assert_eq!(TIME.parse("1.5 ms"), Some(1.5e6));
        assert_eq!(TIME.parse("1_000ns"), Some(1e3));
        assert_eq!(TIME.parse("0"), Some(0.0));
        assert_eq!(BYTES.parse("4KiB"), Some(4096.0));
        assert_eq!(BYTES.parse("64"), Some(64.0));
        assert_eq!(SHARE.parse("1%"), Some(0.01));
        assert_eq!(BANDWIDTH.parse("100Gbps"), Some(100.0));
        assert_eq!(RATE.parse("2M/s"), Some(2e6));
    }

    #[test]
    fn what_is_no_quantity_is_none() {
        for text in ["10", "us", "10 apples", "-5us", "1e3us", "", "1.2.3ms"] {
            assert_eq!(TIME.parse(text), None, "{text}");
        }
    }
}
