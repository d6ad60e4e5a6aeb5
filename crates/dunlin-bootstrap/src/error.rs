//! The errors that can occur before a connection is open.

use std::io;
use std::time::Duration;

use crate::address::Address;
use crate::certificate::CertificateFault;
use crate::parse_error::ParseError;
use crate::prefix::VERSION;
use crate::refusal::Refusal;
use crate::selection::NoCommonDevice;

/// Why a server could not listen, or a client could not open a connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// The host name cannot be resolved.
    #[error("cannot resolve the host of {address}: {source}")]
    UnknownHost {
        /// The server's address.
        address: Address,
        /// The resolver's error.
        source: io::Error,
    },
    /// No server listens at this address.
    #[error("connection refused: no server listens at {address}; start a server there, or check host and port")]
    ConnectionRefused {
        /// The server's address.
        address: Address,
    },
    /// The other side did not answer in time.
    #[error("timed out: no response from {address} within {timeout:?} ({during})")]
    Timeout {
        /// The server's address.
        address: Address,
        /// The timeout.
        timeout: Duration,
        /// The step.
        during: &'static str,
    },
    /// The server closed the connection during the handshake, without an answer.
    #[error("{address} closed the connection during the handshake ({during})")]
    Closed {
        /// The server's address.
        address: Address,
        /// The step.
        during: &'static str,
    },
    /// Another process listens on this address.
    #[error("address {address} is already in use by another process; stop that process, or listen on another port")]
    AddressInUse {
        /// The address to listen on.
        address: Address,
    },
    /// The other side is not a Dunlin server.
    #[error("the server at {address} is not a Dunlin server")]
    NotDunlin {
        /// The server's address.
        address: Address,
    },
    /// The server uses another version.
    #[error(
        "version mismatch: this side speaks version {ours} of the bootstrap, {address} speaks version {theirs}; use \
         the same release on both sides"
    )]
    Version {
        /// The server's address.
        address: Address,
        /// The version of this side.
        ours: u16,
        /// The version of the server.
        theirs: u16,
    },
    /// The secrets differ.
    #[error("authentication failed: the secret differs from that of the server at {address}")]
    WrongSecret {
        /// The server's address.
        address: Address,
    },
    /// The server has a secret, but this side has none.
    #[error("the server at {address} requires a secret, but none was given")]
    SecretRequired {
        /// The server's address.
        address: Address,
    },
    /// This side has a secret, but the server has none.
    #[error(
        "a secret was given, but the server at {address} has no secret to prove its identity with; give the server the \
         same secret, or connect without one"
    )]
    SecretUnexpected {
        /// The server's address.
        address: Address,
    },
    /// The server requires TLS, but this side has no trusted authorities.
    #[error("the server at {address} requires TLS; configure the authority that issued its certificate (TLS)")]
    TlsRequired {
        /// The server's address.
        address: Address,
    },
    /// This side uses TLS, but the server does not.
    #[error(
        "the server at {address} does not support TLS; give the server a certificate, or connect without an authority"
    )]
    TlsUnexpected {
        /// The server's address.
        address: Address,
    },
    /// The server's certificate is not acceptable.
    #[error("the certificate of the server at {address} was rejected: {fault}")]
    ServerCertificate {
        /// The server's address.
        address: Address,
        /// The problem with it.
        fault: CertificateFault,
    },
    /// The server does not accept this side's certificate, or requires one.
    #[error("the server at {address} rejected this client's certificate: {fault}")]
    ClientCertificate {
        /// The server's address.
        address: Address,
        /// The problem with it.
        fault: CertificateFault,
    },
    /// TLS could not be established for another reason.
    #[error("TLS with {address} failed: {what}")]
    Tls {
        /// The server's address.
        address: Address,
        /// The reason.
        what: String,
    },
    /// The two sides have no common device.
    #[error("{address}: {source}")]
    NoCommonDevice {
        /// The server's address.
        address: Address,
        /// The devices of each side.
        source: NoCommonDevice,
    },
    /// The server has too many handshakes in progress.
    #[error("the server at {address} is busy with {limit} other handshakes, its limit; try again")]
    Busy {
        /// The server's address.
        address: Address,
        /// The limit.
        limit: u32,
    },
    /// The server refused for another reason.
    #[error("{address}: {refusal}")]
    Refused {
        /// The server's address.
        address: Address,
        /// The reason.
        refusal: Refusal,
    },
    /// The server's answer is invalid, or was modified in transit.
    #[error("{address} violated the protocol: {what}")]
    Protocol {
        /// The server's address.
        address: Address,
        /// The problem.
        what: String,
    },
    /// A message of this side exceeds a limit.
    #[error("this side exceeded a limit of the bootstrap: {0}")]
    Limit(ParseError),
    /// A system call failed.
    #[error("{call} failed: {source}")]
    Io {
        /// The system call.
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
}

impl BootstrapError {
    pub(crate) fn from_refusal(address: &Address, refusal: Refusal) -> Self {
        let address = address.clone();
        match refusal {
            Refusal::Busy { limit } => Self::Busy { address, limit },
            Refusal::SecretRequired => Self::SecretRequired { address },
            Refusal::SecretUnexpected => Self::SecretUnexpected { address },
            Refusal::WrongSecret => Self::WrongSecret { address },
            Refusal::TlsRequired => Self::TlsRequired { address },
            Refusal::TlsUnexpected => Self::TlsUnexpected { address },
            Refusal::NoCommonDevice(source) => Self::NoCommonDevice { address, source },
            refusal => Self::Refused { address, refusal },
        }
    }

    /// Whether the server may answer differently a moment later.
    pub(crate) fn is_passing(&self) -> bool {
        let unconfirmed = |refusal: &Refusal| matches!(refusal, Refusal::Unconfirmed);
        matches!(self, Self::Busy { .. })
            || matches!(self, Self::Refused { refusal, .. } if unconfirmed(refusal))
    }

    pub(crate) fn from_parse(address: &Address, error: ParseError) -> Self {
        let address = address.clone();
        match error {
            ParseError::NotDunlin => Self::NotDunlin { address },
            ParseError::Version { theirs } => Self::Version {
                address,
                ours: VERSION,
                theirs,
            },
            other => Self::Protocol {
                address,
                what: other.to_string(),
            },
        }
    }
}
