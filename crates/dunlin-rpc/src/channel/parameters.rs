//! The parameters that two sides exchange when they connect, and the checks of those that a peer has stated.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use dunlin_verbs::{RemoteAddress, RemoteKey, VerbsError};

/// Numbers by name.
pub(crate) type Parameters = BTreeMap<String, u64>;

/// Parameters with these names.
pub(crate) fn named<const COUNT: usize>(numbers: [(&str, u64); COUNT]) -> [(String, u64); COUNT] {
    numbers.map(|(name, value)| (name.to_owned(), value))
}

/// The two parameters that state a location in the memory of this side.
pub(super) fn named_place(
    (address, key): (&str, &str),
    place: RemoteAddress,
) -> [(String, u64); 2] {
    named([(address, place.address), (key, u64::from(place.key.0))])
}

/// The parameters of a peer, which may have stated anything or nothing: each is checked when it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerParameters<'a> {
    parameters: &'a Parameters,
    what: &'static str,
}

impl<'a> PeerParameters<'a> {
    /// `what` they describe, for error messages.
    pub(crate) fn new(what: &'static str, parameters: &'a Parameters) -> Self {
        Self { parameters, what }
    }

    /// A number that may be any, if it was stated.
    pub(super) fn get(self, name: &str) -> Option<u64> {
        self.parameters.get(name).copied()
    }

    /// Whether a number is one; an absent one means no.
    pub(super) fn is_set(self, name: &str) -> bool {
        self.get(name) == Some(1)
    }

    /// A number that may be any: a secret, or an address, which the device checks.
    pub(super) fn word(self, name: &str) -> Result<u64, VerbsError> {
        self.get(name).ok_or_else(|| {
            let what = self.what;
            VerbsError::Peer(format!(
                "it did not send its {name}: not {what} of this version"
            ))
        })
    }

    /// A number in this range.
    pub(super) fn number(
        self,
        name: &str,
        range: RangeInclusive<usize>,
    ) -> Result<usize, VerbsError> {
        let value = self.word(name)?;
        let number = usize::try_from(value).ok();
        number
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                let (least, most) = range.into_inner();
                VerbsError::Peer(format!(
                    "its {name} is {value}: it must be from {least} to {most}"
                ))
            })
    }

    /// A number in this range, if it was stated.
    pub(crate) fn optional(
        self,
        name: &str,
        range: RangeInclusive<usize>,
    ) -> Result<Option<usize>, VerbsError> {
        let is_stated = self.get(name).is_some();
        is_stated.then(|| self.number(name, range)).transpose()
    }

    /// A location in the peer's memory.
    pub(super) fn place(self, (address, key): (&str, &str)) -> Result<RemoteAddress, VerbsError> {
        let key = self.number(key, 0..=u32::MAX as usize)?;
        Ok(RemoteAddress {
            address: self.word(address)?,
            key: RemoteKey(key as u32),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: (&str, &str) = ("zone-address", "zone-key");

    #[test]
    fn numbers_are_in_their_range() {
        let number = |value| {
            let parameters = Parameters::from(named([("lines", value)]));
            let said = PeerParameters::new("a ring", &parameters);
            let optional = said.optional("lines", 64..=1024);
            assert_eq!(
                optional.ok().flatten(),
                said.number("lines", 64..=1024).ok()
            );
            said.number("lines", 64..=1024)
        };
        assert_eq!(number(64).unwrap(), 64);
        assert_eq!(number(1024).unwrap(), 1024);
        for value in [0, 63, 1025, 1 << 32 | 64, u64::MAX] {
            let error = number(value).unwrap_err().to_string();
            let words = format!("its lines is {value}: it must be from 64 to 1024");
            assert!(error.contains(&words), "{error}");
        }
    }

    #[test]
    fn what_was_not_stated_is_named() {
        let parameters = Parameters::new();
        let said = PeerParameters::new("a ring", &parameters);
        let errors = [
            said.word("lines").unwrap_err(),
            said.number("lines", 0..=usize::MAX).unwrap_err(),
            said.place(("lines", "lines")).unwrap_err(),
        ];
        for error in errors {
            let words = "it did not send its lines: not a ring of this version";
            assert!(error.to_string().contains(words), "{error}");
        }
        assert_eq!(said.optional("lines", 0..=1).unwrap(), None);
        assert!(!said.is_set("lines"));
    }

    #[test]
    fn a_place_is_any_address_with_a_key_of_32_bits() {
        let place = |address, key| {
            let parameters = Parameters::from(named([(AT.0, address), (AT.1, key)]));
            PeerParameters::new("a zone", &parameters).place(AT)
        };
        let stated = place(u64::MAX, u64::from(u32::MAX)).unwrap();
        assert_eq!(
            (stated.address, stated.key),
            (u64::MAX, RemoteKey(u32::MAX))
        );
        assert_eq!(
            Parameters::from(named_place(AT, stated))[AT.1],
            u64::from(u32::MAX)
        );
        let error = place(0, 1 << 32).unwrap_err().to_string();
        assert!(error.contains("zone-key is 4294967296"), "{error}");
    }
}
