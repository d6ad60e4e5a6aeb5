//! Who a client is, as far as the handshake and the kernel have shown it.

use std::fmt;
use std::net::SocketAddr;

/// A client of a server, as the server knows it. What is not known is left out: nothing of it is the client's word,
/// but for the number by which its connections belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) knows_secret: bool,
    pub(crate) names: Option<Vec<String>>,
    pub(crate) user: Option<u32>,
    pub(crate) client: ClientNumber,
}

/// What all connections of one client have in common, which is told to its server alone: it stays out of logs. Zero:
/// nothing.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClientNumber(u64);

impl fmt::Debug for ClientNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 == 0 { "none" } else { "said" })
    }
}

impl Peer {
    /// Of a client of this process itself, which met its server without a handshake.
    pub fn local() -> Self {
        Self::default()
    }

    /// Where its handshake came from. Not who it is: addresses are shared, translated and forged.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Whether it has proved that it knows the server's secret.
    pub fn knows_secret(&self) -> bool {
        self.knows_secret
    }

    /// Whether it has a certificate that the server's authorities vouch for.
    pub fn has_certificate(&self) -> bool {
        self.names.is_some()
    }

    /// The names in its certificate: the common name of the subject first, then hosts, addresses of mail and URIs.
    pub fn names(&self) -> &[String] {
        self.names.as_deref().unwrap_or_default()
    }

    /// The user that its process runs as, as the kernel says; known over shared memory alone.
    pub fn user(&self) -> Option<u32> {
        self.user
    }

    /// The number that the client has said, the same on all its connections: its word, by which they belong together.
    pub fn client(&self) -> Option<u64> {
        (self.client.0 != 0).then_some(self.client.0)
    }

    /// With the number that the client has said.
    #[must_use]
    pub fn with_client(mut self, number: Option<u64>) -> Self {
        self.client = ClientNumber(number.unwrap_or(0));
        self
    }

    /// Whether the other has shown the same of itself as this one, wherever both come from.
    pub fn is_like(&self, other: &Self) -> bool {
        let shown = |peer: &Self| {
            (
                peer.knows_secret,
                peer.names.clone(),
                peer.user,
                peer.client,
            )
        };
        shown(self) == shown(other)
    }

    /// With the user that the kernel told.
    #[must_use]
    pub fn with_user(mut self, user: Option<u32>) -> Self {
        self.user = user;
        self
    }

    /// One with these names in its certificate, for tests of what decides by them.
    #[must_use]
    pub fn with_names(mut self, names: &[&str]) -> Self {
        self.names = Some(names.iter().map(|&name| name.to_owned()).collect());
        self
    }

    /// One that has proved to know the secret, for tests of what decides by it.
    #[must_use]
    pub fn with_secret(mut self) -> Self {
        self.knows_secret = true;
        self
    }
}

/// As it is named in errors and logs: by the best that is known of it.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.names(), self.user) {
            ([first, ..], _) => write!(f, "{first} (by certificate)")?,
            ([], _) if self.has_certificate() => {
                f.write_str("a client whose certificate has no name")?
            }
            ([], Some(user)) => write!(f, "user {user} (by the kernel)")?,
            ([], None) if self.knows_secret => f.write_str("a client that knows the secret")?,
            ([], None) => f.write_str("a client that has not said who it is")?,
        }
        Ok(())
    }
}
