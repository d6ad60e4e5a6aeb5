//! The threads of a metadata server: the clock, and the one that communicates with the data servers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use dunlin::{Client, Execution};

use super::service::Service;
use super::MetaOptions;
use crate::types::{DataServer, Extent};
use crate::wire::{data, decode, encode, Copy, Described};

/// Interval between two requests to a data server for its identity: a client that has lost one waits about this long
/// for the new one.
const ASK_EVERY: Duration = Duration::from_millis(200);
/// Time that a data server may take to identify itself.
const DESCRIBE_WITHIN: Duration = Duration::from_secs(2);
/// Time that copying one batch may take, which includes the disk.
const COPY_WITHIN: Duration = Duration::from_secs(60);
/// Extents copied by one call: 128 MiB.
const COPIED_AT_ONCE: usize = 4096;

/// Ends the threads when it is dropped.
#[derive(Debug)]
pub(super) struct Keeper {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    service: Option<Arc<Service>>,
}

impl Keeper {
    pub(super) fn start(
        service: &Arc<Service>,
        options: &MetaOptions,
        journal: JoinHandle<()>,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        let tick = (options.lease / 40).clamp(Duration::from_millis(5), Duration::from_millis(50));
        let (ticked, stopped) = (Arc::clone(service), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("dunlin-fs-clock".into());
        threads.push(thread.spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                ticked.tick();
                std::thread::sleep(tick);
            }
        })?);
        if !options.data.is_empty() {
            let mut link = DataLink {
                service: Arc::clone(service),
                options: options.clone(),
                clients: HashMap::new(),
                missing: HashSet::new(),
            };
            let stopped = Arc::clone(&stop);
            let thread = std::thread::Builder::new().name("dunlin-fs-data".into());
            threads.push(thread.spawn(move || {
                while !stopped.load(Ordering::Acquire) {
                    link.describe();
                    link.move_files();
                    std::thread::sleep(ASK_EVERY);
                }
            })?);
        }
        threads.push(journal);
        Ok(Self {
            stop,
            threads,
            service: Some(Arc::clone(service)),
        })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let journal = self.threads.pop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        // The journal, with its lock on the store, ends when the last sender is dropped. If a handler still holds the
        // service, that is when the handler releases it.
        let last = self.service.take().and_then(Arc::into_inner).is_some();
        if let (true, Some(journal)) = (last, journal) {
            let _ = journal.join();
        }
    }
}

/// The connections of the metadata server to the data servers.
struct DataLink {
    service: Arc<Service>,
    options: MetaOptions,
    clients: HashMap<String, Client>,
    /// Addresses at which no data server has answered lately.
    missing: HashSet<String>,
}

impl DataLink {
    /// Logs that a data server is missing, once until it is found.
    fn miss(&mut self, address: &str, error: &dyn std::fmt::Display) {
        if self.missing.insert(address.to_owned()) {
            tracing::warn!(%error, address,
                "cannot reach a data server: its extents are unavailable until it responds");
        }
    }

    fn client(&mut self, address: &str) -> Option<Client> {
        if let Some(client) = self.clients.get(address) {
            return Some(client.clone());
        }
        let mut builder = Client::builder()
            .deadline(DESCRIBE_WITHIN)
            .connect_timeout(DESCRIBE_WITHIN);
        if let Some(secret) = &self.options.secret {
            builder = builder.secret(secret.clone());
        }
        match builder.connect(address) {
            Ok(client) => {
                self.clients.insert(address.to_owned(), client.clone());
                Some(client)
            }
            Err(error) => {
                self.miss(address, &error);
                None
            }
        }
    }

    /// Asks all data servers for their identity: one that has restarted has a new incarnation.
    fn describe(&mut self) {
        for address in self.options.data.clone() {
            let Some(client) = self.client(&address) else {
                continue;
            };
            let said = client.call(data::DESCRIBE, &[]);
            let said = said.inspect_err(|error| self.miss(&address, error)).ok();
            let described = said.and_then(|reply| decode::<Described>(&reply));
            let Some(Described {
                id,
                incarnation,
                extents,
            }) = described
            else {
                continue;
            };
            self.missing.remove(&address);
            let about = DataServer {
                id,
                incarnation,
                extents,
                address,
            };
            let mut state = self.service.lock();
            if state.namespace.servers().contains(&about) {
                continue;
            }
            if state.namespace.know_server(about.clone()).is_none() {
                tracing::error!(
                    ?about,
                    "this data server has become smaller, or exceeds the number of data servers"
                );
            }
            self.service.keep(&mut state, None);
        }
    }

    /// Moves the files that could be written by sessions that have ended.
    fn move_files(&mut self) {
        let files = self.service.lock().namespace.to_move();
        for (session, ino) in files {
            let (pairs, planned) = {
                let mut state = self.service.lock();
                let pairs = state.namespace.plan_move(ino);
                self.service.keep(&mut state, None);
                (pairs, state.namespace.sequence())
            };
            let pairs = match pairs {
                Ok(pairs) => pairs,
                Err(refused) => {
                    tracing::warn!(ino, %refused, "cannot move a file of a session that ended: it stays taken");
                    continue;
                }
            };
            // If the server is killed during the copy, it must find recorded that these extents are not free.
            let kept = self.service.journal.progress.wait_for(planned, COPY_WITHIN);
            let copied = match kept {
                true => self.copy(&pairs),
                false => Copied::No,
            };
            let mut state = self.service.lock();
            match copied {
                Copied::Yes => {
                    state.namespace.finish_move(session, ino, &pairs);
                }
                Copied::No => state.namespace.cancel_move(&pairs),
                Copied::Perhaps => state.namespace.spoil_move(&pairs),
            }
            self.service.keep(&mut state, None);
            self.service.grant(&mut state);
        }
    }

    fn copy(&mut self, pairs: &[(Extent, Extent)]) -> Copied {
        let servers = self.service.lock().namespace.servers();
        let mut by_server = BTreeMap::<u16, Vec<(u32, u32)>>::new();
        for (from, to) in pairs {
            let of = by_server.entry(from.server).or_default();
            of.push((from.index, to.index));
        }
        for (server, pairs) in by_server {
            let about = &servers[usize::from(server)];
            let Some(client) = self.client(&about.address) else {
                return Copied::No;
            };
            for pairs in pairs.chunks(COPIED_AT_ONCE) {
                let copy = Copy {
                    incarnation: about.incarnation,
                    pairs: pairs.to_vec(),
                };
                let copying = client.within(COPY_WITHIN);
                if let Err(error) = copying.call(data::COPY, &encode(&copy)) {
                    tracing::warn!(%error, "cannot copy extents of a session that ended");
                    return match error.execution() {
                        Execution::Unknown => Copied::Perhaps,
                        _ => Copied::No,
                    };
                }
            }
        }
        Copied::Yes
    }
}

/// Whether extents were copied.
enum Copied {
    Yes,
    /// They were not, and will not be.
    No,
    /// It is unknown, and they may still be.
    Perhaps,
}
