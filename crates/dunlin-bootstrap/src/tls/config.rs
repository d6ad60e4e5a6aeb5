//! What each side has for TLS: its certificate with the key, the authorities that it trusts, and whether clients need a
//! certificate.

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

/// Longest PEM file that is read: a bundle with all public authorities has less than half of it.
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
        /// Why.
        why: String,
    },
    /// There is nothing of the kind in what was given.
    #[error("there is no {what} in PEM in it")]
    Nothing {
        /// What was looked for.
        what: &'static str,
    },
    /// It is malformed, or its parts do not fit each other.
    #[error("{what}: {why}")]
    Unusable {
        /// What it was to be.
        what: &'static str,
        /// What is wrong with it.
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

/// What a file holds, of which no more is read than it may have.
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
        return Err(wrong(format!("more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

/// Names the file in what is wrong with its bytes.
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

/// A certificate, those between it and an authority, and its key.
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
    /// From PEM: certificates, the side's own first, and a private key in PKCS#8, PKCS#1 or SEC1.
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

    /// As [`TlsIdentity::from_pem`], of two files, which may be the same.
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

/// The authorities whose certificates are believed, and what they have revoked.
#[derive(Clone, Debug)]
pub struct TlsRoots {
    roots: Arc<RootCertStore>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
}

impl TlsRoots {
    /// From PEM: one certificate of an authority, or several; and lists of revoked certificates (X509 CRL), if there
    /// are any. Where there is one, a certificate whose authority has none of them is refused.
    ///
    /// # Errors
    /// When there is none, or one is malformed.
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

    /// As [`TlsRoots::from_pem`], of a file.
    ///
    /// # Errors
    /// When the file cannot be read, or as above; with its name.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TlsError> {
        let path = path.as_ref();
        of_file(path, Self::from_pem(&read(path)?))
    }
}

/// How a server speaks TLS: then it speaks nothing else.
#[derive(Clone)]
pub struct ServerTls {
    pub(super) config: Arc<ServerConfig>,
    asks_clients: bool,
}

/// Of which clients a server asks certificates.
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
    /// With the server's certificate; clients need none.
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

    /// Clients may present a certificate of one of these authorities, or none; one that does not do is refused. What
    /// those without one may do is for [rights](crate::Peer) to say.
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
        // Each connection proves itself anew: a certificate that has ended since opens no other, and no data can come
        // before that, which somebody could repeat.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self {
            config: Arc::new(config),
            asks_clients: !matches!(clients, Clients::None),
        })
    }
}

/// How a client speaks TLS: then it speaks nothing else.
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
    /// Believes servers whose certificate one of these authorities has issued for the host of their address, and shows
    /// them `identity`, if there is one, when they ask for it.
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

    /// Asks for a certificate for this name, and not for the host of the address.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }
}
