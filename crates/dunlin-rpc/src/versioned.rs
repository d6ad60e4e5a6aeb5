//! Encoding of the messages of a server's built-in handlers: a version byte, then a postcard value. A peer that knows
//! another version reports that instead of guessing.

use serde::{Deserialize, Serialize};

/// Encodes a value with its version.
pub(crate) fn encode(version: u8, value: &impl Serialize) -> Result<Vec<u8>, String> {
    postcard::to_extend(value, vec![version]).map_err(|error| error.to_string())
}

/// Decodes a value from an untrusted peer; `what` begins the text of an error.
pub(crate) fn decode<'a, T: Deserialize<'a>>(
    version: u8,
    bytes: &'a [u8],
    what: &str,
) -> Result<T, String> {
    match bytes.split_first() {
        Some((&found, value)) if found == version => {
            postcard::from_bytes(value).map_err(|error| format!("{what}: {error}"))
        }
        Some((found, _)) => Err(format!(
            "{what} of version {found} are not supported: this side reads version {version}"
        )),
        None => Err(format!("{what}: empty message")),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_or_of_another_version_is_refused_with_words() {
        let value = (7_u32, vec![1_u8, 2, 3], "text".to_owned());
        let mut bytes = encode(2, &value).unwrap();
        let read = |bytes: &[u8]| decode::<(u32, Vec<u8>, String)>(2, bytes, "figures");
        assert_eq!(read(&bytes), Ok(value));
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut]).is_err(), "{cut}");
        }
        bytes[0] = 9;
        let words = read(&bytes).unwrap_err();
        assert!(
            words.contains("version 9") && words.contains("version 2"),
            "{words}"
        );
    }
}
