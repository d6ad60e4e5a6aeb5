//! The handshakes under way: how many there may be, and who has to leave when there are more.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a connection may be silent before it loses its place to a newcomer. A client says hello at once, so
/// this is a round trip and some scheduling.
const SILENCE: Duration = Duration::from_millis(100);

/// One handshake.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) stream: TcpStream,
    /// Whether its hello has come.
    pub(super) greeted: AtomicBool,
    since: Instant,
}

/// All of them, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Pending(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    next_id: u64,
    taken: BTreeMap<u64, Arc<Client>>,
}

/// A handshake's place, given back however its thread ends.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pending: &'a Pending,
    id: u64,
    pub(super) client: Arc<Client>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.pending.lock().taken.remove(&self.id);
    }
}

impl Pending {
    fn lock(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a newcomer: a free one, or that of the oldest that has been silent for too long, which is cut off.
    ///
    /// # Errors
    /// Gives the stream back when there is none.
    pub(super) fn enter(&self, limit: u32, stream: TcpStream) -> Result<Place<'_>, TcpStream> {
        let mut places = self.lock();
        if places.taken.len() >= limit as usize {
            let silent = places.taken.iter().find(|(_, client)| {
                !client.greeted.load(Relaxed) && client.since.elapsed() >= SILENCE
            });
            let Some((&id, client)) = silent else {
                return Err(stream);
            };
            // Its thread sees the end of the stream and leaves at once. It fails when the client is gone already.
            let _ = client.stream.shutdown(Shutdown::Both);
            places.taken.remove(&id);
        }
        let id = places.next_id;
        places.next_id += 1;
        let greeted = AtomicBool::new(false);
        let client = Arc::new(Client {
            stream,
            greeted,
            since: Instant::now(),
        });
        places.taken.insert(id, Arc::clone(&client));
        Ok(Place {
            pending: self,
            id,
            client,
        })
    }

    /// Lets every handshake that waits for its client end now; a reply can still go out.
    pub(super) fn hurry(&self) {
        for client in self.lock().taken.values() {
            // Fails when the client is gone, which ends the handshake as well.
            let _ = client.stream.shutdown(Shutdown::Read);
        }
    }
}
