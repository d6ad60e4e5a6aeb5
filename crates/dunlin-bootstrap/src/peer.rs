//! The identity of a client, as far as the handshake and the kernel have established it.

use std::fmt;
use std::net::SocketAddr;

/// A client of a server, as the server knows it. What is not known is left out: nothing in it is merely claimed by the
/// client, except for the number that groups its connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) knows_secret: bool,
    pub(crate) names: Option<Vec<String>>,
    pub(crate) user: Option<u32>,
    pub(crate) client: ClientNumber,
}

/// A number that all connections of one client share. It is known only to the client's server, and so is kept out of
/// logs. Zero: none.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClientNumber(u64);

impl fmt::Debug for ClientNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 == 0 { "none" } else { "said" })
    }
}

impl Peer {
    /// A client in the server's own process, which connected without a handshake.
    pub fn local() -> Self {
        Self::default()
    }

    /// The address from which its handshake came. This does not identify it: addresses are shared, translated and
    /// forged.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Whether it has proved that it knows the server's secret.
    pub fn knows_secret(&self) -> bool {
        self.knows_secret
    }

    /// Whether it has a certificate issued by one of the server's trusted authorities.
    pub fn has_certificate(&self) -> bool {
        self.names.is_some()
    }

    /// The names in its certificate: the common name of the subject first, then host names, email addresses and URIs.
    pub fn names(&self) -> &[String] {
        self.names.as_deref().unwrap_or_default()
    }

    /// The user that its process runs as, according to the kernel; known only over shared memory.
    pub fn user(&self) -> Option<u32> {
        self.user
    }

    /// The number sent by the client, the same on all its connections: not verified, only used to group them.
    pub fn client(&self) -> Option<u64> {
        (self.client.0 != 0).then_some(self.client.0)
    }

    /// Sets the number sent by the client.
    #[must_use]
    pub fn with_client(mut self, number: Option<u64>) -> Self {
        self.client = ClientNumber(number.unwrap_or(0));
        self
    }

    /// Whether both have proved the same identity, whatever their addresses.
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

    /// Sets the user reported by the kernel.
    #[must_use]
    pub fn with_user(mut self, user: Option<u32>) -> Self {
        self.user = user;
        self
    }

    /// Sets these names as those of its certificate, for tests of decisions based on them.
    #[must_use]
    pub fn with_names(mut self, names: &[&str]) -> Self {
        self.names = Some(names.iter().map(|&name| name.to_owned()).collect());
        self
    }

    /// Marks it as having proved the secret, for tests of decisions based on that.
    #[must_use]
    pub fn with_secret(mut self) -> Self {
        self.knows_secret = true;
        self
    }
}

/// The name used in errors and logs: the most specific identity that is known.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.names(), self.user) {
            ([first, ..], _) => write!(f, "{first} (by certificate)")?,
            ([], _) if self.has_certificate() => {
                f.write_str("a client whose certificate contains no name")?
            }
            ([], Some(user)) => write!(f, "user {user} (by the kernel)")?,
            ([], None) if self.knows_secret => f.write_str("a client that knows the secret")?,
            ([], None) => f.write_str("a client that has not authenticated")?,
        }
        Ok(())
    }
}
