//! Resolving a host name before a deadline: the first step of connecting to or serving an address.
//!
//! The system's resolver blocks for an unlimited time, half a minute and more if a name server does not respond, and
//! cannot be cancelled. So each name is looked up by a separate thread; one that is late is left to end by itself, and
//! there are at most [`MOST_LOOKUPS`]. Numeric addresses need none of this.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Instant;

use crate::address::Address;
use crate::error::BootstrapError;
use crate::time::Time;

/// Maximum number of names that a process looks up at once, including those that no caller waits for any more.
const MOST_LOOKUPS: usize = 64;

/// Number of lookups in progress.
static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

/// Looks up all IP addresses of an address's host, at least one.
///
/// # Errors
/// [`BootstrapError::UnknownHost`] when the name cannot be resolved, [`BootstrapError::Timeout`] when the resolver has
/// not answered in time, [`BootstrapError::Io`] when too many names are being looked up.
pub(crate) fn resolve(address: &Address, time: Time) -> Result<Vec<SocketAddr>, BootstrapError> {
    if let Ok(numeric) = address.host().parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(numeric, address.port())]);
    }
    let name = address.clone();
    let lookup = move || Ok(name.to_pair().to_socket_addrs()?.collect());
    resolve_by(address, time, &LOOKUPS, lookup)
}

/// Like [`resolve`], using this function for the lookup; `lookups` counts those in progress.
fn resolve_by(
    address: &Address,
    time: Time,
    lookups: &'static AtomicUsize,
    lookup: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> Result<Vec<SocketAddr>, BootstrapError> {
    let failed = |source| BootstrapError::Io {
        call: "looking up a host name",
        source,
    };
    let place = Place::take(lookups).ok_or_else(|| {
        let why = format!(
            "{MOST_LOOKUPS} name lookups are already running, the limit; check the name server"
        );
        failed(io::Error::new(ErrorKind::WouldBlock, why))
    })?;
    let (sender, receiver) = mpsc::sync_channel(1);
    let run = move || {
        let _ = sender.send(lookup());
        drop(place);
    };
    let named = thread::Builder::new().name("dunlin-resolve".into());
    named.spawn(run).map_err(failed)?;
    let unknown = |source| BootstrapError::UnknownHost {
        address: address.clone(),
        source,
    };
    let left = time.deadline.saturating_duration_since(Instant::now());
    match receiver.recv_timeout(left) {
        Ok(Ok(all)) if all.is_empty() => Err(unknown(ErrorKind::NotFound.into())),
        Ok(found) => found.map_err(unknown),
        Err(RecvTimeoutError::Timeout) => Err(BootstrapError::Timeout {
            address: address.clone(),
            timeout: time.timeout,
            during: "resolving its name",
        }),
        Err(RecvTimeoutError::Disconnected) => Err(unknown(ErrorKind::Other.into())),
    }
}

/// A slot among the lookups in progress.
struct Place(&'static AtomicUsize);

impl Place {
    fn take(lookups: &'static AtomicUsize) -> Option<Self> {
        let place = Self(lookups);
        // A count above the limit is undone when the value is dropped.
        (lookups.fetch_add(1, Ordering::Relaxed) < MOST_LOOKUPS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;
    use crate::stream::after;

    fn address() -> Address {
        "dunlin://db1.example:7400".parse().unwrap()
    }

    #[test]
    fn addresses_need_no_resolver() {
        for text in ["dunlin://127.0.0.1:7400", "dunlin://[::1]:7400"] {
            let address: Address = text.parse().unwrap();
            let all = resolve(&address, Time::of(Duration::ZERO)).unwrap();
            assert_eq!(all.len(), 1);
            assert_eq!(Address::from(all[0]), address);
        }
    }

    #[test]
    fn a_name_of_this_host_is_found() {
        let address: Address = "dunlin://localhost:7400".parse().unwrap();
        let all = resolve(&address, Time::of(Duration::from_secs(30))).unwrap();
        assert!(all
            .iter()
            .all(|one| one.ip().is_loopback() && one.port() == 7400));
    }

    #[test]
    fn a_resolver_that_finds_nothing_names_the_host() {
        static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
        let found = resolve_by(
            &address(),
            Time::of(Duration::from_secs(30)),
            &LOOKUPS,
            || Ok(Vec::new()),
        );
        assert!(matches!(found, Err(BootstrapError::UnknownHost { .. })));
    }

    #[test]
    fn silent_resolvers_are_left_behind_and_counted() {
        static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
        let (silence, end) = mpsc::channel::<()>();
        let end = Arc::new(Mutex::new(end));
        let ask = || {
            let end = Arc::clone(&end);
            resolve_by(
                &address(),
                Time::of(Duration::from_millis(1)),
                &LOOKUPS,
                move || {
                    // Blocks until the other end is dropped.
                    let _ = end.lock().unwrap().recv();
                    Err(ErrorKind::NotFound.into())
                },
            )
        };
        for _ in 0..MOST_LOOKUPS {
            assert!(matches!(ask(), Err(BootstrapError::Timeout { .. })));
        }
        let error = ask().unwrap_err().to_string();
        assert!(
            error.contains("64 name lookups are already running"),
            "{error}"
        );
        drop(silence);
        // Their slots are freed when they end.
        let patience = after(Duration::from_secs(30));
        while LOOKUPS.load(Ordering::Relaxed) > 0 {
            assert!(Instant::now() < patience);
            thread::yield_now();
        }
    }
}
