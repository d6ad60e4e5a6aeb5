//! Addresses of servers: `dunlin://host:port`.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The port of an address that does not specify one.
pub const DEFAULT_PORT: u16 = 7400;

/// Maximum length of a host name in bytes: the limit of the domain name system.
const HOST_BYTES: usize = 253;

const SCHEME: &str = "dunlin://";

/// The address on which a server listens: a host name or IP address, and a TCP port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    host: String,
    port: u16,
}

/// Why a text is not a valid [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It has another scheme.
    #[error("unsupported scheme `{scheme}://`; write dunlin://host:port")]
    Scheme {
        /// The part before `://`.
        scheme: String,
    },
    /// The host is missing.
    #[error("missing host; write dunlin://host:port")]
    NoHost,
    /// The host is too long or has characters that are invalid in a host name.
    #[error("`{host}` is not a host name or IP address")]
    Host {
        /// The invalid part, truncated.
        host: String,
    },
    /// The part in brackets is not an IPv6 address, or an IPv6 address is not in brackets.
    #[error("`{host}` is not an IPv6 address in brackets; write dunlin://[::1]:7400")]
    Ipv6 {
        /// The invalid part, truncated.
        host: String,
    },
    /// Something follows host and port.
    #[error("unexpected path `{path}` in the address; write dunlin://host:port")]
    Path {
        /// The invalid part, truncated.
        path: String,
    },
    /// The port is not a number from 0 to 65535.
    #[error("invalid TCP port `{port}`; write a number from 0 to 65535")]
    Port {
        /// The invalid part, truncated.
        port: String,
    },
}

impl Address {
    /// The host name or IP address, an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The form that the system's resolver takes.
    pub(crate) fn to_pair(&self) -> (&str, u16) {
        (&self.host, self.port)
    }
}

/// A part of the input that is short enough to quote in an error.
fn quote(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let rest = match text.split_once("://") {
            Some(("dunlin", rest)) => rest.strip_suffix('/').unwrap_or(rest),
            Some((scheme, _)) => {
                return Err(AddressError::Scheme {
                    scheme: quote(scheme),
                })
            }
            None => text,
        };
        if let Some(at) = rest.find('/') {
            let path = quote(&rest[at..]);
            return Err(AddressError::Path { path });
        }
        let (host, port) = if let Some(inner) = rest.strip_prefix('[') {
            let wrong = || AddressError::Ipv6 { host: quote(rest) };
            let (host, after) = inner.split_once(']').ok_or_else(wrong)?;
            let host = host.parse::<Ipv6Addr>().map_err(|_| wrong())?.to_string();
            match after.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if after.is_empty() => (host, None),
                None => return Err(wrong()),
            }
        } else {
            let (host, port) = match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            };
            if port.is_some_and(|port| port.contains(':')) {
                return Err(AddressError::Ipv6 { host: quote(rest) });
            }
            if host.is_empty() {
                return Err(AddressError::NoHost);
            }
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
            if host.len() > HOST_BYTES || !host.bytes().all(plain) {
                return Err(AddressError::Host { host: quote(host) });
            }
            (host.to_string(), port)
        };
        let port = match port {
            None => DEFAULT_PORT,
            // `u16::from_str` alone would accept "+7400".
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| AddressError::Port {
                    port: quote(digits),
                })?
            }
            Some(other) => return Err(AddressError::Port { port: quote(other) }),
        };
        Ok(Self { host, port })
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "{SCHEME}[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{SCHEME}{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Result<String, AddressError> {
        text.parse::<Address>().map(|address| address.to_string())
    }

    #[test]
    fn good_addresses() {
        for (text, shown) in [
            ("dunlin://db1:7401", "dunlin://db1:7401"),
            ("dunlin://db1", "dunlin://db1:7400"),
            ("dunlin://db1/", "dunlin://db1:7400"),
            ("127.0.0.1:0", "dunlin://127.0.0.1:0"),
            ("db1.example.org", "dunlin://db1.example.org:7400"),
            ("dunlin://[::1]:9", "dunlin://[::1]:9"),
            ("[0:0:0:0:0:0:0:1]", "dunlin://[::1]:7400"),
        ] {
            assert_eq!(parsed(text).as_deref(), Ok(shown), "{text}");
        }
    }

    #[test]
    fn bad_addresses() {
        assert!(matches!(
            parsed("http://db1:80"),
            Err(AddressError::Scheme { .. })
        ));
        assert!(matches!(parsed("dunlin://"), Err(AddressError::NoHost)));
        assert!(matches!(parsed(":7400"), Err(AddressError::NoHost)));
        assert!(matches!(parsed("::1"), Err(AddressError::Ipv6 { .. })));
        assert!(matches!(parsed("[::1"), Err(AddressError::Ipv6 { .. })));
        assert!(matches!(parsed("[db1]:1"), Err(AddressError::Ipv6 { .. })));
        assert!(matches!(
            parsed("[::1]7400"),
            Err(AddressError::Ipv6 { .. })
        ));
        assert!(matches!(parsed("db 1"), Err(AddressError::Host { .. })));
        assert!(matches!(
            parsed(&"a".repeat(254)),
            Err(AddressError::Host { .. })
        ));
        for text in ["dunlin://[::1]:7711/path", "db1:1/", "dunlin://db1//"] {
            assert!(matches!(parsed(text), Err(AddressError::Path { .. })));
        }
        for port in [
            "db1:",
            "db1:x",
            "db1:65536",
            "db1:+1",
            "db1:-1",
            "db1:99999999999999999999",
        ] {
            assert!(
                matches!(parsed(port), Err(AddressError::Port { .. })),
                "{port}"
            );
        }
    }

    proptest! {
        #[test]
        fn whatever_parses_is_shown_and_parsed_again(text in "(dunlin://)?[a-z0-9:.\\[\\]/-]{0,24}") {
            if let Ok(address) = text.parse::<Address>() {
                prop_assert_eq!(address.to_string().parse(), Ok(address));
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let _ = text.parse::<Address>();
        }
    }
}
