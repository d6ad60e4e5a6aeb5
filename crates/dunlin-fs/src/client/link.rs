//! The data servers' regions: attached only at the start that the metadata server knows.

use std::collections::HashMap;
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
}

impl Link {
    /// Writes extents to the server's file. Returns `false` if the server has restarted, or no longer answers: what was
    /// written is lost, or may be.
    pub(super) fn flush(&self, extents: Vec<u32>) -> Result<bool, FsError> {
        let incarnation = self.incarnation;
        let flush = encode(&Flush {
            incarnation,
            extents,
        });
        match self.client.within(FLUSH_WITHIN).call(data::FLUSH, &flush) {
            Ok(_) => Ok(true),
            Err(error) => {
                tracing::warn!(%error, address = self.address, "cannot sync written extents");
                Ok(false)
            }
        }
    }
}

/// All links.
#[derive(Debug)]
pub(super) struct Links {
    options: FsOptions,
    known: Mutex<HashMap<u16, Link>>,
}

impl Links {
    pub(super) fn new(options: &FsOptions) -> Self {
        Self {
            options: options.clone(),
            known: Mutex::default(),
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
            }),
            Err(error) => Err(FsError::Unreachable {
                address: about.address,
                seconds: 0,
                source: Box::new(error),
            }),
        })
    }

    /// A link has failed: the next use attaches it again.
    pub(super) fn drop_link(&self, server: u16, incarnation: u64) {
        let mut known = self.known();
        if known
            .get(&server)
            .is_some_and(|link| link.incarnation == incarnation)
        {
            known.remove(&server);
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
            self.drop_link(server, link.incarnation);
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
