//! The address of an export.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A socket's address: `unix:PATH` or `tcp:HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// A Unix socket in the file system.
    Unix(PathBuf),
    /// A host and a port.
    Tcp(String),
}

/// A text is not a valid address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid address '{0}': write unix:PATH or tcp:HOST:PORT, such as unix:/run/birds.sock or tcp:127.0.0.1:10809"
)]
pub struct NbdAddressError(String);

impl FromStr for NbdAddress {
    type Err = NbdAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", place)) => match place.rsplit_once(':') {
                Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                    Ok(Self::Tcp(place.to_owned()))
                }
                _ => Err(NbdAddressError(text.to_owned())),
            },
            _ => Err(NbdAddressError(text.to_owned())),
        }
    }
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(place) => write!(f, "tcp:{place}"),
        }
    }
}

impl NbdAddress {
    /// The URI by which NBD clients name the export of a volume.
    pub fn uri(&self, volume: &str) -> String {
        match self {
            Self::Unix(path) => format!("nbd+unix:///{volume}?socket={}", path.display()),
            Self::Tcp(place) => format!("nbd://{place}/{volume}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in [
            "unix:/run/a:b.sock",
            "tcp:127.0.0.1:10809",
            "tcp:[::1]:0",
            "tcp:db1:99",
        ] {
            assert_eq!(text.parse::<NbdAddress>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "unix:",
            "tcp:10809",
            "tcp::10809",
            "tcp:db1:99999",
            "/run/a",
            "udp:a:1",
        ] {
            assert!(text.parse::<NbdAddress>().is_err(), "{text}");
        }
        let unix: NbdAddress = "unix:/run/a".parse().unwrap();
        assert_eq!(unix.uri("birds"), "nbd+unix:///birds?socket=/run/a");
    }
}
