//! TLS options of the command line and the settings: what a server presents and requests, what a client trusts and
//! presents.

use std::path::{Path, PathBuf};

use dunlin::{ClientTls, ServerTls, TlsError, TlsIdentity, TlsRoots};

use crate::commands::Failure;

/// The TLS files of one side, as set in the settings file and the environment.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The authorities of the other side.
    pub ca: Option<PathBuf>,
    /// The certificate of this side.
    pub cert: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
}

impl Files {
    /// These files, with those of `set` where one is missing.
    fn or(&self, set: &Self) -> Self {
        let first = |one: &Option<PathBuf>, other: &Option<PathBuf>| {
            one.as_ref().or(other.as_ref()).cloned()
        };
        Self {
            ca: first(&self.ca, &set.ca),
            cert: first(&self.cert, &set.cert),
            key: first(&self.key, &set.key),
        }
    }

    fn roots(&self) -> Result<Option<TlsRoots>, Failure> {
        let roots = self.ca.as_ref().map(TlsRoots::from_file).transpose();
        roots.map_err(wrong)
    }

    fn identity(&self) -> Result<Option<TlsIdentity>, Failure> {
        match (&self.cert, &self.key) {
            (None, None) => Ok(None),
            (Some(cert), Some(key)) => identity(cert, key).map(Some),
            (Some(_), None) => Err(half("--tls-key", "tls_key")),
            (None, Some(_)) => Err(half("--tls-cert", "tls_cert")),
        }
    }
}

fn wrong(error: TlsError) -> Failure {
    Failure::usage(format!("TLS: {error}"))
}

fn half(option: &str, key: &str) -> Failure {
    let words = format!(
        "TLS: a certificate and its key must be given together: {option} (or `{key}`) is missing"
    );
    Failure::usage(words)
}

fn identity(cert: &Path, key: &Path) -> Result<TlsIdentity, Failure> {
    TlsIdentity::from_files(cert, key).map_err(wrong)
}

/// TLS options of a client, which uses TLS if authorities are given.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ClientOptions {
    /// TLS: certificates (PEM) of the authorities that may have issued the server's; enables TLS 1.3
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// TLS: this client's certificate (PEM), for servers that request one
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// TLS: private key of the certificate (PEM)
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// TLS: name that the server's certificate must have [default: host of the address]
    #[arg(long, value_name = "NAME")]
    tls_name: Option<String>,
}

impl ClientOptions {
    fn files(&self) -> Files {
        Files {
            ca: self.tls_ca.clone(),
            cert: self.tls_cert.clone(),
            key: self.tls_key.clone(),
        }
    }

    /// The options as arguments of a process that has the same settings.
    pub fn arguments(&self) -> Vec<String> {
        let files = [
            ("--tls-ca", &self.tls_ca),
            ("--tls-cert", &self.tls_cert),
            ("--tls-key", &self.tls_key),
        ];
        let files = files.into_iter().filter_map(|(name, file)| {
            let file = file.as_ref()?.to_string_lossy().into_owned();
            Some([name.to_owned(), file])
        });
        let name = self.tls_name.clone();
        let name = name.map(|name| ["--tls-name".to_owned(), name]);
        files.chain(name).flatten().collect()
    }

    /// The resulting configuration, with the settings applied; `None` without TLS.
    ///
    /// # Errors
    /// When a file cannot be used, or one is missing.
    pub fn client(
        &self,
        set: &Files,
        set_name: Option<&String>,
    ) -> Result<Option<ClientTls>, Failure> {
        let files = self.files().or(set);
        let identity = files.identity()?;
        let Some(roots) = files.roots()? else {
            return match identity {
                None => Ok(None),
                Some(_) => Err(Failure::usage(
                    "TLS: specify the authority of the server's certificate with --tls-ca (or `tls_ca`)",
                )),
            };
        };
        let tls = ClientTls::new(&roots, identity.as_ref()).map_err(wrong)?;
        let name = self.tls_name.as_ref().or(set_name);
        Ok(Some(match name {
            Some(name) => tls.server_name(name),
            None => tls,
        }))
    }
}

/// TLS options of a server, which uses TLS if it has a certificate.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ServerOptions {
    /// TLS: the server's certificate (PEM) with its intermediate certificates; clients must then speak TLS 1.3
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// TLS: private key of the certificate (PEM)
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// TLS: certificates (PEM) of the authorities of clients, which must then present a certificate
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// TLS: also accept clients without a certificate; --rights determines what they may do
    #[arg(long, requires = "tls_ca")]
    tls_optional: bool,
}

impl ServerOptions {
    fn files(&self, set: &Files) -> Files {
        let own = Files {
            ca: self.tls_ca.clone(),
            cert: self.tls_cert.clone(),
            key: self.tls_key.clone(),
        };
        own.or(set)
    }

    /// The resulting configuration, with the settings applied; `None` without TLS.
    ///
    /// # Errors
    /// When a file cannot be used, or one is missing.
    pub fn server(&self, set: &Files, set_optional: bool) -> Result<Option<ServerTls>, Failure> {
        let files = self.files(set);
        let roots = files.roots()?;
        let Some(identity) = files.identity()? else {
            return match roots {
                None => Ok(None),
                Some(_) => Err(Failure::usage(
                    "TLS: a server that requires client certificates needs its own: --tls-cert and --tls-key",
                )),
            };
        };
        let made = match roots {
            None => ServerTls::new(&identity),
            Some(roots) if self.tls_optional || set_optional => {
                ServerTls::with_optional_clients(&identity, &roots)
            }
            Some(roots) => ServerTls::with_clients(&identity, &roots),
        };
        made.map(Some).map_err(wrong)
    }

    /// The configuration of a server as a client of its peers: the machines of a database authenticate each other with
    /// the same files.
    ///
    /// # Errors
    /// As for [`ServerOptions::server`].
    pub fn among_equals(&self, set: &Files) -> Result<Option<ClientTls>, Failure> {
        let files = self.files(set);
        match (files.roots()?, files.identity()?) {
            (Some(roots), identity) => ClientTls::new(&roots, identity.as_ref())
                .map(Some)
                .map_err(wrong),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(Failure::usage(
                "TLS: machines of a database are clients of each other: specify their authority with --tls-ca",
            )),
        }
    }
}
