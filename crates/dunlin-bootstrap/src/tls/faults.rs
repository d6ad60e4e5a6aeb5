//! Translates errors of rustls, and the other side's alerts.

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

use crate::certificate::{CertificateFault, TlsFailure};

impl TlsFailure {
    /// `met`: the other side has shown that it speaks TLS.
    pub(super) fn of(error: &Error, met: bool) -> Self {
        match error {
            Error::InvalidMessage(_) if !met => Self::NotTls,
            Error::InvalidCertificate(error) => Self::Certificate(fault(error)),
            Error::NoCertificatesPresented => Self::Certificate(CertificateFault::Missing),
            Error::AlertReceived(alert) => alerted(*alert),
            Error::PeerIncompatible(
                PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
                | PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled,
            ) => Self::Other("the other side does not speak TLS 1.3".to_owned()),
            other => Self::Other(other.to_string()),
        }
    }
}

fn fault(error: &CertificateError) -> CertificateFault {
    match error {
        CertificateError::Expired => CertificateFault::Expired { seconds_ago: None },
        CertificateError::ExpiredContext { time, not_after } => CertificateFault::Expired {
            seconds_ago: Some(time.as_secs().saturating_sub(not_after.as_secs())),
        },
        CertificateError::NotValidYet => CertificateFault::NotYetValid { seconds_left: None },
        CertificateError::NotValidYetContext { time, not_before } => {
            CertificateFault::NotYetValid {
                seconds_left: Some(not_before.as_secs().saturating_sub(time.as_secs())),
            }
        }
        CertificateError::NotValidForName => CertificateFault::WrongName {
            asked: "the name that was asked for".to_owned(),
            names: Vec::new(),
        },
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => CertificateFault::WrongName {
            asked: expected.to_str().into_owned(),
            names: presented.iter().map(|name| plain(name)).collect(),
        },
        CertificateError::UnknownIssuer => CertificateFault::UnknownIssuer,
        CertificateError::Revoked => CertificateFault::Revoked,
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            CertificateFault::WrongUse
        }
        other => CertificateFault::Invalid(other.to_string()),
    }
}

/// A name without rustls's own notation: `DnsName("db")` is `db`.
fn plain(name: &str) -> String {
    let inner = name
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"').to_owned()
}

fn alerted(alert: AlertDescription) -> TlsFailure {
    TlsFailure::Refused(match alert {
        AlertDescription::CertificateExpired => CertificateFault::Expired { seconds_ago: None },
        AlertDescription::UnknownCA => CertificateFault::UnknownIssuer,
        AlertDescription::CertificateRequired => CertificateFault::Missing,
        AlertDescription::CertificateRevoked => CertificateFault::Revoked,
        AlertDescription::UnsupportedCertificate => CertificateFault::WrongUse,
        // Most likely an authority of the same name with another key.
        AlertDescription::DecryptError => CertificateFault::Invalid("invalid signature".to_owned()),
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => {
            CertificateFault::Invalid(format!("TLS alert {alert:?}"))
        }
        AlertDescription::ProtocolVersion => {
            let words = "the other side does not speak TLS 1.3";
            return TlsFailure::Other(words.to_owned());
        }
        other => {
            let words = format!("the other side closed TLS with the alert {other:?}");
            return TlsFailure::Other(words);
        }
    })
}
