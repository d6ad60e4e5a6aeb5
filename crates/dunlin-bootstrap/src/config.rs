//! The configuration of the two sides of a handshake.

use std::net::IpAddr;
use std::time::Duration;

use crate::secret::Secret;
use crate::selection::Capability;
use crate::tls::{ClientTls, ServerTls};
use crate::wire::MAX_FRAME;

/// What a server offers, and its limits on unauthenticated clients.
#[derive(Clone, Debug)]
pub struct AcceptorConfig {
    /// The secret that clients have to know, if any.
    pub secret: Option<Secret>,
    /// The server's certificate, and whether clients need one. If set, the handshake always runs inside TLS 1.3.
    pub tls: Option<ServerTls>,
    /// The devices over which clients may connect.
    pub capabilities: Vec<Capability>,
    /// Returns the device whose network interface has this address of the host: among equally good devices a client
    /// gets the one at which its connection arrived. `None`: the first.
    pub device_at: Option<fn(IpAddr) -> Option<String>>,
    /// Time from the TCP connection to the open request. 5 s by default.
    pub handshake_timeout: Duration,
    /// Maximum number of handshakes in progress, at most a quarter of the file descriptors that the process may have.
    /// 1024 by default. Above it, a newcomer displaces a client that keeps the server waiting: one that has sent
    /// nothing for 100 ms, or whose open request has not arrived within 250 ms of its acceptance, beginning with the
    /// address that holds the most places. If there is none, newcomers wait in the system's queue. A displaced client
    /// is told that the server is busy, and [`crate::dial`] tries again.
    ///
    /// A client that has sent its open request, with the required proof, is never displaced by one that has not. If
    /// most of the clients that wait for their connection to be opened come from one address, the server also reads
    /// from up to a quarter more newcomers instead of leaving them in the queue. If one of these sends such a request,
    /// too, it displaces the last client of the majority if it comes from another address; if it comes from the same,
    /// it is told that the server is busy.
    pub max_pending: u32,
    /// Maximum length of a frame that is read, in bytes. 16 KiB by default, which is also the upper limit.
    pub max_frame: usize,
}

impl Default for AcceptorConfig {
    fn default() -> Self {
        Self {
            secret: None,
            tls: None,
            capabilities: Vec::new(),
            device_at: None,
            handshake_timeout: Duration::from_secs(5),
            max_pending: 1024,
            max_frame: MAX_FRAME,
        }
    }
}

/// The configuration of a client.
#[derive(Clone, Debug)]
pub struct DialConfig {
    /// The secret that the server has to know, if any.
    pub secret: Option<Secret>,
    /// The authorities that the client trusts, and the certificate that it presents. If set, the handshake always runs
    /// inside TLS 1.3.
    pub tls: Option<ClientTls>,
    /// The client's devices.
    pub capabilities: Vec<Capability>,
    /// The name or kind of the required device, if only one is acceptable.
    pub device: Option<String>,
    /// Time for the whole handshake: looking up the host name, connecting, the hellos, the open request. 5 s by
    /// default.
    pub timeout: Duration,
}

impl Default for DialConfig {
    fn default() -> Self {
        Self {
            secret: None,
            tls: None,
            capabilities: Vec::new(),
            device: None,
            timeout: Duration::from_secs(5),
        }
    }
}
