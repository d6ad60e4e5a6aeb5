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
    #[error("the host of {address} is not known: {source}")]
    UnknownHost {
        /// The server's address.
        address: Address,
        /// The resolver's error.
        source: io::Error,
    },
    /// No server listens at this address.
    #[error("no server listens at {address}; start one there, or check host and port")]
    ConnectionRefused {
        /// The server's address.
        address: Address,
    },
    /// The other side did not answer in time.
    #[error("{address} did not answer within {timeout:?} ({during})")]
    Timeout {
        /// The server's address.
        address: Address,
        /// The timeout.
        timeout: Duration,
        /// The step.
        during: &'static str,
    },
    /// The server closed the connection during the handshake, without an answer.
    #[error("{address} closed the connection in the middle of the handshake ({during})")]
    Closed {
        /// The server's address.
        address: Address,
        /// The step.
        during: &'static str,
    },
    /// Another process listens on this address.
    #[error("{address} is in use by another process; stop it, or listen on another port")]
    AddressInUse {
        /// The address to listen on.
        address: Address,
    },
    /// The other side is not a Dunlin server.
    #[error("what listens at {address} is not a Dunlin server")]
    NotDunlin {
        /// The server's address.
        address: Address,
    },
    /// The server uses another version.
    #[error("this side speaks version {ours} of the bootstrap, {address} speaks version {theirs}; use the same release on both")]
    Version {
        /// The server's address.
        address: Address,
        /// The version of this side.
        ours: u16,
        /// The version of the server.
        theirs: u16,
    },
    /// The secrets differ.
    #[error("the secret is not the one of the server at {address}")]
    WrongSecret {
        /// The server's address.
        address: Address,
    },
    /// The server has a secret, but this side has none.
    #[error("the server at {address} asks for a secret, and none was given")]
    SecretRequired {
        /// The server's address.
        address: Address,
    },
    /// This side has a secret, but the server has none.
    #[error("a secret was given, but the server at {address} has none to prove itself with; give the server the secret too, or none to the client")]
    SecretUnexpected {
        /// The server's address.
        address: Address,
    },
    /// The server requires TLS, but this side has no trusted authorities.
    #[error("the server at {address} speaks TLS alone; give the client the authority of its certificate (TLS)")]
    TlsRequired {
        /// The server's address.
        address: Address,
    },
    /// This side uses TLS, but the server does not.
    #[error("the server at {address} does not speak TLS; give it a certificate, or no authority to the client")]
    TlsUnexpected {
        /// The server's address.
        address: Address,
    },
    /// The server's certificate is not acceptable.
    #[error("the certificate of the server at {address} was refused: {fault}")]
    ServerCertificate {
        /// The server's address.
        address: Address,
        /// The problem with it.
        fault: CertificateFault,
    },
    /// The server does not accept this side's certificate, or requires one.
    #[error("the server at {address} refused this client's certificate: {fault}")]
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
    #[error("{address} broke the protocol: {what}")]
    Protocol {
        /// The server's address.
        address: Address,
        /// The problem.
        what: String,
    },
    /// A message of this side exceeds a limit.
    #[error("a limit of the bootstrap is broken on this side: {0}")]
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
