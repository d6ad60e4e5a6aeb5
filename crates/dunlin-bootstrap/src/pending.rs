//! The clients for which the server waits in a handshake: their maximum number, and which are displaced above it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::peer::Peer;
use crate::secret::Transcript;
use crate::selection::Choice;
use crate::stream::Incoming;
use crate::tls::{ServerTls, Session};
use crate::transport::Transport;

/// Time without any message after which a client may be displaced by a newcomer. Clients send their hello at once, so
/// this covers a round trip and some scheduling.
const SILENCE: Duration = Duration::from_millis(100);
/// Time between hello and open request after which a client may be displaced by a newcomer: enough to create a queue
/// pair on a busy host. A correct client that is slower tries again with the request prepared.
const HESITATION: Duration = Duration::from_millis(250);

/// A client for which the server waits.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: Transport,
    pub(crate) peer: SocketAddr,
    pub(crate) incoming: Incoming,
    pub(crate) transcript: Transcript,
    /// The chosen device, once its hello has arrived.
    pub(crate) choice: Option<Choice>,
    since: Instant,
}

impl Client {
    pub(crate) fn new(stream: TcpStream, peer: SocketAddr) -> Self {
        Self {
            stream: Transport::Plain(stream),
            peer,
            incoming: Incoming::default(),
            transcript: Transcript::new(),
            choice: None,
            since: Instant::now(),
        }
    }

    /// The same client, over TLS, which it has started.
    pub(crate) fn into_tls(self, tls: &ServerTls) -> io::Result<Self> {
        let stream = match self.stream {
            Transport::Plain(tcp) => {
                let session = Session::server(tcp, tls, self.incoming.begun())?;
                Transport::Tls(Box::new(session))
            }
            already @ Transport::Tls(_) => already,
        };
        Ok(Self {
            stream,
            incoming: Incoming::default(),
            ..self
        })
    }

    /// The client's identity once it is authenticated; `by_secret`: it has proved that it knows the secret.
    pub(crate) fn known(&self, by_secret: bool) -> Peer {
        Peer {
            address: Some(self.peer),
            knows_secret: by_secret,
            names: self.stream.peer_names(),
            ..Peer::default()
        }
    }

    /// Whether it may be displaced.
    fn is_late(&self, now: Instant) -> bool {
        let patience = match self.choice {
            None => SILENCE,
            Some(_) => HESITATION,
        };
        now.duration_since(self.since) >= patience
    }

    /// The origin to which its place is counted: an address, or an IPv6 network, since such a network has practically
    /// unlimited addresses.
    pub(crate) fn origin(&self) -> IpAddr {
        match self.peer.ip().to_canonical() {
            IpAddr::V6(address) => {
                let network = address.to_bits() & !u128::from(u64::MAX);
                Ipv6Addr::from_bits(network).into()
            }
            address => address,
        }
    }
}

/// All such clients, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    next_id: u64,
    clients: BTreeMap<u64, Client>,
    /// Number of places of each origin.
    shares: HashMap<IpAddr, usize>,
}

impl Pending {
    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Gives a client a place, and returns the place's number.
    pub(crate) fn add(&mut self, client: Client) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.put_back(id, client);
        id
    }

    /// Puts a client that was taken out back into its place.
    pub(crate) fn put_back(&mut self, id: u64, client: Client) {
        *self.shares.entry(client.origin()).or_default() += 1;
        self.clients.insert(id, client);
    }

    pub(crate) fn get(&mut self, id: u64) -> Option<&mut Client> {
        self.clients.get_mut(&id)
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<Client> {
        let client = self.clients.remove(&id)?;
        let origin = client.origin();
        if let Some(share) = self.shares.get_mut(&origin) {
            *share -= 1;
            if *share == 0 {
                self.shares.remove(&origin);
            }
        }
        Some(client)
    }

    /// Takes out the client that a newcomer displaces, if any: among those that are late, one of the origin with the
    /// most places, preferably one that has sent nothing, and the oldest of these.
    pub(crate) fn evict(&mut self, now: Instant) -> Option<Client> {
        let late = self.clients.iter().filter(|(_, one)| one.is_late(now));
        let share = |one: &Client| self.shares.get(&one.origin()).copied().unwrap_or(0);
        let rank = |id: u64, one: &Client| {
            let age = std::cmp::Reverse(id);
            (share(one), one.choice.is_none(), age)
        };
        let (&id, _) = late.max_by_key(|(&id, one)| rank(id, one))?;
        self.remove(id)
    }

    /// Takes out the oldest if its time has passed.
    pub(crate) fn expired(&mut self, now: Instant, timeout: Duration) -> Option<Client> {
        let (&id, client) = self.clients.first_key_value()?;
        let over = now.duration_since(client.since) >= timeout;
        over.then(|| self.remove(id)).flatten()
    }

    /// When the time of the oldest passes.
    pub(crate) fn next_expiry(&self, timeout: Duration) -> Option<Instant> {
        let (_, client) = self.clients.first_key_value()?;
        client.since.checked_add(timeout)
    }

    /// Takes out all.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Client> {
        std::mem::take(self).clients.into_values()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::selection::Reason;

    fn from(peer: &str, greeted: bool) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut client = Client::new(stream, peer.parse().unwrap());
        client.choice = greeted.then(|| Choice {
            client_device: "shm".into(),
            server_device: "shm".into(),
            reason: Reason::SameHost,
        });
        client
    }

    #[test]
    fn the_largest_share_makes_room_and_nobody_who_is_in_time() {
        let mut pending = Pending::default();
        pending.add(from("192.0.2.1:1", false));
        for port in 2..5 {
            pending.add(from(&format!("[2001:db8::{port}]:9"), port != 3));
        }
        let start = Instant::now();
        assert!(pending.evict(start).is_none(), "nobody is late");
        let peer = |evicted: Option<Client>| evicted.map(|one| one.peer.ip().to_string());
        // The silent one is late, the others of its network are not.
        let silent = pending.evict(start + SILENCE);
        assert_eq!(peer(silent).as_deref(), Some("2001:db8::3"));
        let late = start + HESITATION;
        assert_eq!(peer(pending.evict(late)).as_deref(), Some("2001:db8::2"));
        // One place each: a silent client is displaced before one that has sent a hello.
        assert_eq!(peer(pending.evict(late)).as_deref(), Some("192.0.2.1"));
        assert_eq!(peer(pending.evict(late)).as_deref(), Some("2001:db8::4"));
        assert!(pending.evict(late).is_none() && pending.shares.is_empty());
    }
}
