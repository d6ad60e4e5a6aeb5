//! Why TLS did not come about between two sides, as values: what rustls and the other side's alerts say, in words of
//! this project.

use std::fmt;

/// What is wrong with a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateFault {
    /// Its time has ended.
    Expired {
        /// So many seconds ago, where that is known: the side that presents it learns only that it has ended.
        seconds_ago: Option<u64>,
    },
    /// Its time has not begun.
    NotYetValid {
        /// In so many seconds it will.
        seconds_left: Option<u64>,
    },
    /// It is for other names.
    WrongName {
        /// The name that was asked for.
        asked: String,
        /// Those that it is for.
        names: Vec<String>,
    },
    /// No authority that is trusted has issued it.
    UnknownIssuer,
    /// There is none, and one is required.
    Missing,
    /// It was issued for another use: a server's certificate is presented by a client, or the other way round.
    WrongUse,
    /// It was revoked.
    Revoked,
    /// Anything else, in words.
    Invalid(String),
}

/// Seconds as a person would say them.
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
            } => write!(f, "it is not valid before {} from now", About(*seconds)),
            Self::WrongName { asked, names } => {
                let names = match names.is_empty() {
                    true => "no name".to_owned(),
                    false => names.join(", "),
                };
                write!(f, "it is for {names}, not for {asked}")
            }
            Self::UnknownIssuer => f.write_str("no authority that is trusted here has issued it"),
            Self::Missing => f.write_str("there is none, and one is required"),
            Self::WrongUse => {
                f.write_str("it was issued for another use (of servers and clients the other)")
            }
            Self::Revoked => f.write_str("it was revoked"),
            Self::Invalid(words) => f.write_str(words),
        }
    }
}

/// Why TLS did not come about. An error of a stream carries it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(
    not(feature = "tls"),
    expect(dead_code, reason = "without TLS none is ever made")
)]
pub(crate) enum TlsFailure {
    /// The first bytes of the other side are no TLS.
    #[error("the other side does not speak TLS")]
    NotTls,
    /// Its certificate does not do.
    #[error("its certificate does not do: {0}")]
    Certificate(CertificateFault),
    /// It says that ours does not do.
    #[error("it refuses the certificate of this side: {0}")]
    Refused(CertificateFault),
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}
