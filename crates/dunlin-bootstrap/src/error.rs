//! Everything that can go wrong before a connection is open.

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
    /// The name of the host leads nowhere.
    #[error("the host of {address} is not known: {source}")]
    UnknownHost {
        /// The server's address.
        address: Address,
        /// What the resolver said.
        source: io::Error,
    },
    /// Nobody listens there.
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
        /// The time that was allowed.
        timeout: Duration,
        /// In which step.
        during: &'static str,
    },
    /// The server ended the handshake without a word.
    #[error("{address} closed the connection in the middle of the handshake ({during})")]
    Closed {
        /// The server's address.
        address: Address,
        /// In which step.
        during: &'static str,
    },
    /// Another process listens there.
    #[error("{address} is in use by another process; stop it, or listen on another port")]
    AddressInUse {
        /// The address to listen on.
        address: Address,
    },
    /// What answers is no Dunlin server.
    #[error("what listens at {address} is not a Dunlin server")]
    NotDunlin {
        /// The server's address.
        address: Address,
    },
    /// The server speaks another version.
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
    /// The server has a secret, this side has none.
    #[error("the server at {address} asks for a secret, and none was given")]
    SecretRequired {
        /// The server's address.
        address: Address,
    },
    /// This side has a secret, the server has none.
    #[error("a secret was given, but the server at {address} has none to prove itself with; give the server the secret too, or none to the client")]
    SecretUnexpected {
        /// The server's address.
        address: Address,
    },
    /// The server speaks TLS alone, this side was given no authorities.
    #[error("the server at {address} speaks TLS alone; give the client the authority of its certificate (TLS)")]
    TlsRequired {
        /// The server's address.
        address: Address,
    },
    /// This side speaks TLS, the server does not.
    #[error("the server at {address} does not speak TLS; give it a certificate, or no authority to the client")]
    TlsUnexpected {
        /// The server's address.
        address: Address,
    },
    /// The server's certificate does not do.
    #[error("the certificate of the server at {address} was refused: {fault}")]
    ServerCertificate {
        /// The server's address.
        address: Address,
        /// What is wrong with it.
        fault: CertificateFault,
    },
    /// The server says that this side's certificate does not do, or that one is required.
    #[error("the server at {address} refused this client's certificate: {fault}")]
    ClientCertificate {
        /// The server's address.
        address: Address,
        /// What is wrong with it.
        fault: CertificateFault,
    },
    /// TLS did not come about for another reason.
    #[error("TLS with {address} failed: {what}")]
    Tls {
        /// The server's address.
        address: Address,
        /// Why.
        what: String,
    },
    /// Nothing joins the two sides.
    #[error("{address}: {source}")]
    NoCommonDevice {
        /// The server's address.
        address: Address,
        /// What each side has.
        source: NoCommonDevice,
    },
    /// The server has too many handshakes under way.
    #[error("the server at {address} is busy with {limit} other handshakes, its limit; try again")]
    Busy {
        /// The server's address.
        address: Address,
        /// The limit.
        limit: u32,
    },
    /// The server said no for another reason.
    #[error("{address}: {refusal}")]
    Refused {
        /// The server's address.
        address: Address,
        /// Why.
        refusal: Refusal,
    },
    /// The server's answer makes no sense, or somebody changed it on its way.
    #[error("{address} broke the protocol: {what}")]
    Protocol {
        /// The server's address.
        address: Address,
        /// How.
        what: String,
    },
    /// What this side wants to say breaks a limit.
    #[error("a limit of the bootstrap is broken on this side: {0}")]
    Limit(ParseError),
    /// The system refused something.
    #[error("{call} failed: {source}")]
    Io {
        /// What was asked of it.
        call: &'static str,
        /// What it said.
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

    /// Whether the server may say something else a moment later.
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
