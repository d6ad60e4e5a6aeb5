//! The TLS configuration of each side: its certificate and key, the authorities that it trusts, and whether clients
//! need a certificate.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{ring, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// Maximum length of a PEM file that is read: a bundle of all public authorities is less than half as long.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why certificates or a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{file}: {why}")]
    File {
        /// Its path.
        file: String,
        /// The reason.
        why: String,
    },
    /// The input contains nothing of the required kind.
    #[error("no {what} in PEM format found")]
    Nothing {
        /// The required kind.
        what: &'static str,
    },
    /// The input is malformed, or its parts do not match.
    #[error("{what}: {why}")]
    Unusable {
        /// What it should have been.
        what: &'static str,
        /// The problem.
        why: String,
    },
}

impl TlsError {
    fn unusable(what: &'static str, why: impl fmt::Display) -> Self {
        let why = why.to_string();
        Self::Unusable { what, why }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Reads a file, but no more of it than the maximum.
fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let wrong = |why: String| TlsError::File {
        file: path.display().to_string(),
        why,
    };
    let file = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mut bytes = Vec::new();
    let mut limited = std::io::Read::take(file, FILE_BYTES_MAX + 1);
    std::io::Read::read_to_end(&mut limited, &mut bytes)
        .map_err(|error| wrong(error.to_string()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong(format!(
            "larger than the limit of {FILE_BYTES_MAX} bytes"
        )));
    }
    Ok(bytes)
}

/// Adds the file's name to an error in its contents.
fn of_file<T>(path: &Path, made: Result<T, TlsError>) -> Result<T, TlsError> {
    made.map_err(|error| match error {
        error @ TlsError::File { .. } => error,
        error => TlsError::File {
            file: path.display().to_string(),
            why: error.to_string(),
        },
    })
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| TlsError::unusable("a certificate", error))?;
    match all.is_empty() {
        true => Err(TlsError::Nothing {
            what: "certificate",
        }),
        false => Ok(all),
    }
}

/// A certificate, the intermediate certificates up to an authority, and its key.
pub struct TlsIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsIdentity(..)")
    }
}

impl Clone for TlsIdentity {
    fn clone(&self) -> Self {
        Self {
            chain: self.chain.clone(),
            key: self.key.clone_key(),
        }
    }
}

impl TlsIdentity {
    /// Reads PEM: certificates, the side's own first, and a private key in PKCS#8, PKCS#1 or SEC1.
    ///
    /// # Errors
    /// When something is missing or malformed.
    pub fn from_pem(certificates_pem: &[u8], key_pem: &[u8]) -> Result<Self, TlsError> {
        let chain = certificates(certificates_pem)?;
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| match error {
            rustls::pki_types::pem::Error::NoItemsFound => TlsError::Nothing {
                what: "private key",
            },
            error => TlsError::unusable("the private key", error),
        })?;
        Ok(Self { chain, key })
    }

    /// Like [`TlsIdentity::from_pem`], from two files, which may be the same.
    ///
    /// # Errors
    /// When a file cannot be read, or as above; with the file's name.
    pub fn from_files(
        certificates: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<Self, TlsError> {
        let (certificates, key) = (certificates.as_ref(), key.as_ref());
        let chain = of_file(certificates, self::certificates(&read(certificates)?))?;
        let pem = read(key)?;
        let made = Self::from_pem(&read(certificates)?, &pem);
        of_file(key, made).map(|made| Self { chain, ..made })
    }
}

/// The trusted authorities, and the certificates that they have revoked.
#[derive(Clone, Debug)]
pub struct TlsRoots {
    roots: Arc<RootCertStore>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
}

impl TlsRoots {
    /// Reads PEM: certificates of one or several authorities, and optionally certificate revocation lists (X509 CRL).
    /// If there is a list, a certificate whose authority has none is refused.
    ///
    /// # Errors
    /// When there is no certificate, or one is malformed.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(pem)? {
            roots
                .add(certificate)
                .map_err(|error| TlsError::unusable("an authority's certificate", error))?;
        }
        let revoked: Result<Vec<_>, _> =
            CertificateRevocationListDer::pem_slice_iter(pem).collect();
        let revoked =
            revoked.map_err(|error| TlsError::unusable("a list of revoked certificates", error))?;
        Ok(Self {
            roots: Arc::new(roots),
            revoked,
        })
    }

    /// Like [`TlsRoots::from_pem`], from a file.
    ///
    /// # Errors
    /// When the file cannot be read, or as above; with its name.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TlsError> {
        let path = path.as_ref();
        of_file(path, Self::from_pem(&read(path)?))
    }
}

/// The TLS configuration of a server, which then requires TLS.
#[derive(Clone)]
pub struct ServerTls {
    pub(super) config: Arc<ServerConfig>,
    asks_clients: bool,
}

/// Which clients a server asks for certificates.
#[derive(Clone, Debug)]
enum Clients<'a> {
    None,
    May(&'a TlsRoots),
    Must(&'a TlsRoots),
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls(..)")
    }
}

impl ServerTls {
    /// Uses the server's certificate; clients need none.
    ///
    /// # Errors
    /// When certificate and key cannot be used together.
    pub fn new(identity: &TlsIdentity) -> Result<Self, TlsError> {
        Self::make(identity, &Clients::None)
    }

    /// Clients must present a certificate of one of these authorities.
    ///
    /// # Errors
    /// As for [`ServerTls::new`].
    pub fn with_clients(identity: &TlsIdentity, roots: &TlsRoots) -> Result<Self, TlsError> {
        Self::make(identity, &Clients::Must(roots))
    }

    /// Clients may present a certificate of one of these authorities, or none; an invalid one is refused. What clients
    /// without one may do is determined by their [rights](crate::Peer).
    ///
    /// # Errors
    /// As for [`ServerTls::new`].
    pub fn with_optional_clients(
        identity: &TlsIdentity,
        roots: &TlsRoots,
    ) -> Result<Self, TlsError> {
        Self::make(identity, &Clients::May(roots))
    }

    /// Whether it asks clients for a certificate.
    pub fn asks_clients(&self) -> bool {
        self.asks_clients
    }

    fn make(identity: &TlsIdentity, clients: &Clients<'_>) -> Result<Self, TlsError> {
        let wrong = |error: rustls::Error| TlsError::unusable("certificate and key", error);
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(wrong)?;
        let builder = match clients {
            Clients::None => builder.with_no_client_auth(),
            Clients::May(roots) | Clients::Must(roots) => {
                let authorities = Arc::clone(&roots.roots);
                let mut verifier =
                    WebPkiClientVerifier::builder_with_provider(authorities, provider())
                        .with_crls(roots.revoked.clone());
                if matches!(clients, Clients::May(_)) {
                    verifier = verifier.allow_unauthenticated();
                }
                let verifier = verifier
                    .build()
                    .map_err(|error| TlsError::unusable("the authorities of clients", error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let chain = identity.chain.clone();
        let mut config = builder
            .with_single_cert(chain, identity.key.clone_key())
            .map_err(wrong)?;
        // Each connection authenticates anew: a certificate that has expired meanwhile opens no further connection, and
        // there is no early data, which an attacker could replay.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self {
            config: Arc::new(config),
            asks_clients: !matches!(clients, Clients::None),
        })
    }
}

/// The TLS configuration of a client, which then requires TLS.
#[derive(Clone)]
pub struct ClientTls {
    pub(super) config: Arc<ClientConfig>,
    pub(super) server_name: Option<String>,
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

impl ClientTls {
    /// Trusts servers with a certificate that one of these authorities has issued for the host of their address, and
    /// presents `identity`, if given, when a server asks for it.
    ///
    /// # Errors
    /// When certificate and key cannot be used together.
    pub fn new(roots: &TlsRoots, identity: Option<&TlsIdentity>) -> Result<Self, TlsError> {
        let wrong = |error: rustls::Error| TlsError::unusable("certificate and key", error);
        let authorities = Arc::clone(&roots.roots);
        let verifier = WebPkiServerVerifier::builder_with_provider(authorities, provider())
            .with_crls(roots.revoked.clone())
            .build()
            .map_err(|error| TlsError::unusable("the authorities of servers", error))?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(wrong)?
            .with_webpki_verifier(verifier);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain = identity.chain.clone();
                builder
                    .with_client_auth_cert(chain, identity.key.clone_key())
                    .map_err(wrong)?
            }
        };
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Self {
            config: Arc::new(config),
            server_name: None,
        })
    }

    /// Expects a certificate for this name instead of the host of the address.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }
}
