//! Why TLS could not be established, as values: translates errors of rustls and the other side's alerts.

use std::fmt;

/// The problem with a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateFault {
    /// It has expired.
    Expired {
        /// Number of seconds since then, if known: the side that presents it learns only that it has expired.
        seconds_ago: Option<u64>,
    },
    /// It is not valid yet.
    NotYetValid {
        /// Number of seconds until it is, if known.
        seconds_left: Option<u64>,
    },
    /// It was issued for other names.
    WrongName {
        /// The requested name.
        asked: String,
        /// The names in the certificate.
        names: Vec<String>,
    },
    /// It was not issued by a trusted authority.
    UnknownIssuer,
    /// No certificate was presented, and one is required.
    Missing,
    /// It was issued for another use: a client presents a server's certificate, or vice versa.
    WrongUse,
    /// It was revoked.
    Revoked,
    /// Another problem, as text.
    Invalid(String),
}

/// A number of seconds, formatted for people.
struct About(u64);

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            seconds @ 0..=119 => write!(f, "{seconds} s"),
            seconds @ 120..=7199 => write!(f, "{} minutes", seconds / 60),
            seconds @ 7200..=172_799 => write!(f, "{} hours", seconds / 3600),
            seconds => write!(f, "{} days", seconds / 86_400),
        }
    }
}

impl fmt::Display for CertificateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { seconds_ago: None } => f.write_str("it has expired"),
            Self::Expired {
                seconds_ago: Some(seconds),
            } => write!(f, "it expired {} ago", About(*seconds)),
            Self::NotYetValid { seconds_left: None } => f.write_str("it is not valid yet"),
            Self::NotYetValid {
                seconds_left: Some(seconds),
            } => write!(f, "it is not valid until {} from now", About(*seconds)),
            Self::WrongName { asked, names } => {
                let names = match names.is_empty() {
                    true => "no name".to_owned(),
                    false => names.join(", "),
                };
                write!(f, "it is valid for {names}, not for {asked}")
            }
            Self::UnknownIssuer => f.write_str("it was not issued by a trusted authority"),
            Self::Missing => f.write_str("a certificate is required, and none was given"),
            Self::WrongUse => {
                f.write_str("it was issued for another purpose (for servers instead of clients, or the reverse)")
            }
            Self::Revoked => f.write_str("it has been revoked"),
            Self::Invalid(words) => f.write_str(words),
        }
    }
}

/// Why TLS could not be established. Wrapped in a stream's error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(
    not(feature = "tls"),
    expect(dead_code, reason = "without TLS none is ever made")
)]
pub(crate) enum TlsFailure {
    /// The first bytes from the other side are not TLS.
    #[error("the other side does not speak TLS")]
    NotTls,
    /// The other side's certificate is not acceptable.
    #[error("its certificate was rejected: {0}")]
    Certificate(CertificateFault),
    /// The other side does not accept our certificate.
    #[error("it rejected the certificate of this side: {0}")]
    Refused(CertificateFault),
    /// Another problem, as text.
    #[error("{0}")]
    Other(String),
}
