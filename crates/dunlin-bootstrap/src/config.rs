//! What either side of a handshake has, wants and allows.

use std::net::IpAddr;
use std::time::Duration;

use crate::secret::Secret;
use crate::selection::Capability;
use crate::tls::{ClientTls, ServerTls};
use crate::wire::MAX_FRAME;

/// What a server offers, and what it allows to strangers.
#[derive(Clone, Debug)]
pub struct AcceptorConfig {
    /// What clients have to know, if anything.
    pub secret: Option<Secret>,
    /// The certificate of the server, and whether clients need one: then the handshake runs in TLS 1.3, and in nothing
    /// else.
    pub tls: Option<ServerTls>,
    /// The devices that clients may be connected over.
    pub capabilities: Vec<Capability>,
    /// Which device's network interface has an address of this host: of devices that would do equally well, a client
    /// gets the one where it came in. `None`: the first.
    pub device_at: Option<fn(IpAddr) -> Option<String>>,
    /// Time from the TCP connection to the open request. 5 s.
    pub handshake_timeout: Duration,
    /// Handshakes under way at once; of the file descriptors that the process may have a quarter at most. 1024. A
    /// newcomer above it takes the place of a client who keeps the server waiting: one that has said nothing for 100
    /// ms, or whose open request has not come 250 ms after it was taken, of the address that has the most places. While
    /// there is none, newcomers wait in the system's queue. Who had to leave is told that the server is busy, and
    /// [`crate::dial`] comes again.
    ///
    /// Who has sent his open request, with the proof that is asked for, leaves for nobody who has not. Where most of
    /// those who then wait to be opened are of one address, up to a quarter more newcomers are heard instead of left in
    /// the queue. Of those that send such a request, too, one of another address takes the place of the last of the
    /// many; one of the same is told that the server is busy.
    pub max_pending: u32,
    /// Largest frame that is read, in bytes. 16 KiB, which also is the most.
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

/// What a client has and wants.
#[derive(Clone, Debug)]
pub struct DialConfig {
    /// What the server has to know, if anything.
    pub secret: Option<Secret>,
    /// What the client trusts, and the certificate that it shows: then the handshake runs in TLS 1.3, and in nothing
    /// else.
    pub tls: Option<ClientTls>,
    /// The client's devices.
    pub capabilities: Vec<Capability>,
    /// The name or kind of the only device that will do.
    pub device: Option<String>,
    /// Time for all of it: looking up the host's name, connecting, the hellos, the open request. 5 s.
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
