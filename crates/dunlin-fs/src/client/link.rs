//! The data servers' regions: attached only at the start that the metadata server knows.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dunlin::{CallError, Client, Preset, RemoteRegion};

use super::{FsError, FsOptions, MetaClient};
use crate::types::Errno;
use crate::wire::{data, encode, region_name, Answer, Ask, Flush};

/// Interval between two attempts at an unreachable data server.
const TRY_EVERY: Duration = Duration::from_millis(20);
/// Timeout of one operation on a region, after which it is retried.
const OPERATION_WITHIN: Duration = Duration::from_secs(5);
/// Timeout of a sync, which includes the disk.
const FLUSH_WITHIN: Duration = Duration::from_secs(30);

/// A data server at one of its starts.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) incarnation: u64,
    pub(super) region: RemoteRegion,
    client: Client,
    address: String,
    /// Of this attachment: a server that was attached again at the same start has another one.
    number: u64,
}

/// All links.
#[derive(Debug)]
pub(super) struct Links {
    options: FsOptions,
    known: Mutex<HashMap<u16, Link>>,
    attached: AtomicU64,
}

impl Links {
    pub(super) fn new(options: &FsOptions) -> Self {
        Self {
            options: options.clone(),
            known: Mutex::default(),
            attached: AtomicU64::new(0),
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<u16, Link>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a server's link, and attaches it if necessary.
    pub(super) fn link(&self, meta: &MetaClient, server: u16) -> Result<Link, FsError> {
        if let Some(link) = self.known().get(&server) {
            return Ok(link.clone());
        }
        let began = Instant::now();
        loop {
            let error = match self.attach(meta, server)? {
                Ok(link) => {
                    self.known().insert(server, link.clone());
                    return Ok(link);
                }
                Err(error) => error,
            };
            if began.elapsed() >= self.options.patience {
                tracing::warn!(%error, server, "cannot reach a data server");
                return Err(error);
            }
            std::thread::sleep(TRY_EVERY);
        }
    }

    /// Uses one connection for all threads: each connection registers the whole region at the server again, and a
    /// device limits the number of registered bytes.
    fn connect(&self, address: &str) -> Result<Client, FsError> {
        let builder = self.options.builder().preset(Preset::Flock).lanes(1);
        Ok(builder.connect(address)?)
    }

    /// Attaches the region that the metadata server names; the inner error may be temporary.
    fn attach(&self, meta: &MetaClient, server: u16) -> Result<Result<Link, FsError>, FsError> {
        let servers = match meta.ask(&Ask::Servers)? {
            Answer::Servers(servers) => servers,
            other => return Err(meta.strange(&other)),
        };
        let Some(about) = servers.into_iter().nth(usize::from(server)) else {
            return Err(Errno::IO.into());
        };
        let client = match self.connect(&about.address) {
            Ok(client) => client,
            Err(error) => return Ok(Err(error)),
        };
        let attached = client.attach(&region_name(about.incarnation));
        Ok(match attached {
            Ok(region) => Ok(Link {
                incarnation: about.incarnation,
                region: region.within(OPERATION_WITHIN),
                client,
                address: about.address,
                number: self.attached.fetch_add(1, Ordering::Relaxed),
            }),
            Err(error) => Err(FsError::Unreachable {
                address: about.address,
                seconds: 0,
                source: Box::new(error),
            }),
        })
    }

    /// A link has failed: the next use attaches the server again. Its connection is closed for all threads first. A
    /// WRITE that was given up must not stay with a queue pair that may still send it, after it was repeated over
    /// another one and newer bytes were written there.
    fn drop_link(&self, server: u16, failed: &Link) {
        failed.client.close();
        let mut known = self.known();
        if known
            .get(&server)
            .is_some_and(|link| link.number == failed.number)
        {
            known.remove(&server);
        }
    }

    /// Writes extents to the file of a server, where it is still at this start. Returns `false` if it has restarted,
    /// or cannot do so: what was written is lost, or may be. A lost connection alone loses nothing.
    pub(super) fn flush(
        &self,
        meta: &MetaClient,
        (server, incarnation): (u16, u64),
        extents: Vec<u32>,
    ) -> Result<bool, FsError> {
        let flush = encode(&Flush {
            incarnation,
            extents,
        });
        let began = Instant::now();
        loop {
            let link = self.link(meta, server)?;
            if link.incarnation != incarnation {
                return Ok(false);
            }
            let error = match link.client.within(FLUSH_WITHIN).call(data::FLUSH, &flush) {
                Ok(_) => return Ok(true),
                Err(error) => error,
            };
            tracing::warn!(%error, address = link.address, "cannot sync written extents");
            self.drop_link(server, &link);
            let is_refused = matches!(error, CallError::Handler { .. });
            if is_refused || began.elapsed() >= self.options.patience {
                return Ok(false);
            }
            std::thread::sleep(TRY_EVERY);
        }
    }

    /// Performs an operation on a region until it succeeds, at whichever start of the server is current; returns that
    /// start.
    pub(super) fn operate<T>(
        &self,
        meta: &MetaClient,
        server: u16,
        operation: impl Fn(&Link) -> Result<T, CallError>,
    ) -> Result<(T, u64), FsError> {
        let began = Instant::now();
        loop {
            let link = self.link(meta, server)?;
            let error = match operation(&link) {
                Ok(done) => return Ok((done, link.incarnation)),
                Err(error) => error,
            };
            tracing::debug!(%error, server, "retrying an operation on a data server");
            self.drop_link(server, &link);
            if began.elapsed() >= self.options.patience {
                return Err(FsError::Unreachable {
                    address: link.address,
                    seconds: self.options.patience.as_secs(),
                    source: Box::new(error),
                });
            }
            std::thread::sleep(TRY_EVERY);
        }
    }
}

#[cfg(all(test, feature = "server"))]
mod tests {
    use super::*;
    use crate::{data as data_server, meta as meta_server, FileSystem};
    use dunlin::Server;

    #[test]
    fn a_link_that_failed_is_closed_and_costs_nothing_that_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let bind = || Server::bind("dunlin://127.0.0.1:0").unwrap();
        let options = data_server::DataOptions {
            file: folder.path().join("data"),
            bytes: 1 << 20,
            durability: meta_server::Durability::Process,
        };
        let data = data_server::serve(bind(), &options).unwrap();
        let options = meta_server::MetaOptions {
            data: vec![data.address().to_string()],
            ..meta_server::MetaOptions::new(folder.path().join("meta"))
        };
        let meta = meta_server::serve(bind(), &options).unwrap();
        let system = FileSystem::connect(&meta.running().address().to_string()).unwrap();
        while system.space().unwrap().bytes == 0 {
            std::thread::sleep(TRY_EVERY);
        }
        let file = system.create_new("/f").unwrap();
        file.write_at(0, b"written").unwrap();
        let links = system.links();
        let link = || links.link(system.meta(), 0).unwrap();
        let (former, of_another_thread) = (link(), link());
        links.drop_link(0, &former);
        // Nothing that it was given is sent after this.
        let written = of_another_thread.region.write(0, b"late");
        assert!(matches!(written, Err(CallError::Closed)), "{written:?}");
        // That failure is not one of the link that took its place.
        let next = link();
        links.drop_link(0, &of_another_thread);
        assert_eq!(next.number, link().number);
        next.region.read(0, 1).unwrap();
        // A sync finds what was written at the same start, over whichever connection.
        links.drop_link(0, &next);
        file.sync().unwrap();
        assert_eq!(file.read_at(0, 100).unwrap(), b"written");
    }
}
