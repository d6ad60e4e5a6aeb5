//! The thread that brings servers back: it connects, compares, copies, and opens the volume anew where too few were
//! left. It is asleep while all are there.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use dunlin::Pipeline;

use super::link::Link;
use super::open::{self, is_enough, Mine, Opened};
use super::repair::Members;
use super::{VolumeError, VolumeOptions};
use crate::types::Shape;
use crate::wire::{Described, Named, Promise, PROTOCOL};

/// Between two tries at servers that are out.
const TRY_EVERY: Duration = Duration::from_millis(100);
/// How long the engine may take to say that a server gets its writes: it looks whenever it is polled.
const STARTED_WITHIN: Duration = Duration::from_secs(5);

/// What the engine tells the thread.
#[derive(Debug)]
pub(super) enum Told {
    /// A server is out.
    Out(usize),
    /// A server that was connected in this session gets all writes.
    Started(u64),
    /// Too few are left.
    Reopen,
    /// The volume is closed.
    End,
}

/// What the thread tells the engine.
pub(super) enum Event {
    /// A server is connected, and is to get all writes.
    Connected {
        server: usize,
        session: u64,
        pipeline: Box<Pipeline>,
        whole: bool,
    },
    /// It has all that it must have.
    Joined { server: usize, session: u64 },
    /// The volume was opened anew.
    Reopened {
        epoch: u64,
        session: u64,
        pipelines: Vec<Option<Pipeline>>,
    },
    /// Somebody else has it.
    Replaced,
}

/// See the module.
pub(super) struct Keeper {
    pub(super) name: String,
    pub(super) addresses: Vec<String>,
    pub(super) options: VolumeOptions,
    pub(super) shape: Shape,
    pub(super) mine: Mine,
    pub(super) links: Vec<Option<Link>>,
    pub(super) told: Receiver<Told>,
    pub(super) tell: Sender<Event>,
    /// Wakes the engine.
    pub(super) wake: Box<dyn Fn() + Send>,
    pub(super) session: u64,
}

/// The lanes to servers that were opened.
pub(super) fn pipelines(opened: &Opened) -> Result<Vec<Option<Pipeline>>, VolumeError> {
    let links = opened.links.iter();
    links
        .map(|link| link.as_ref().map(Link::pipeline).transpose())
        .collect()
}

impl Keeper {
    pub(super) fn run(mut self) {
        // An error is the end of the volume, here or there.
        while let Ok(true) = self.turn() {}
    }

    /// Something is told or tried; whether there is more to do.
    fn turn(&mut self) -> Result<bool, VolumeError> {
        let missing = self.links.iter().any(Option::is_none);
        let told = match missing {
            true => self.told.recv_timeout(TRY_EVERY),
            false => self.told.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match told {
            Ok(Told::Out(server)) => self.links[server] = None,
            Ok(Told::Reopen) => return self.reopen(),
            Ok(Told::Started(_)) => {}
            Ok(Told::End) | Err(RecvTimeoutError::Disconnected) => return Ok(false),
            Err(RecvTimeoutError::Timeout) => {
                for server in 0..self.links.len() {
                    if self.links[server].is_none() {
                        match self.bring_back(server) {
                            Ok(true) => {}
                            Ok(false) => break,
                            Err(VolumeError::Replaced) => return self.replaced(),
                            Err(error) => {
                                tracing::debug!(%error, server, "a copy cannot be brought back yet");
                            }
                        }
                    }
                }
            }
        }
        Ok(true)
    }

    fn send(&self, event: Event) -> Result<(), VolumeError> {
        let sent = self.tell.send(event);
        (self.wake)();
        sent.map_err(|_| VolumeError::System("the volume is closed".into()))
    }

    fn replaced(&self) -> Result<bool, VolumeError> {
        self.send(Event::Replaced)?;
        Ok(false)
    }

    fn in_sync(&self) -> u64 {
        let links = self.links.iter().enumerate();
        links
            .filter(|(_, link)| link.is_some())
            .fold(0, |set, (server, _)| set | 1 << server)
    }

    /// Connects a server and brings it up to date. `false`: something else is to be done first.
    fn bring_back(&mut self, server: usize) -> Result<bool, VolumeError> {
        let address = &self.addresses[server];
        let link = Link::connect(address, &self.options)?;
        let Mine { epoch, owner } = self.mine;
        let known = match link.describe(&self.name) {
            Ok(known) => known,
            Err(error) if error.is_unknown() => {
                // It has lost what it had, or never had it.
                let shape = self.shape.clone();
                let place = server as u8;
                let described = Described {
                    shape,
                    place,
                    epoch,
                    owner,
                    whole: false,
                    settled: 0,
                };
                link.create(&described)?;
                described
            }
            Err(error) => return Err(error),
        };
        if known.shape != self.shape || usize::from(known.place) != server {
            return Err(VolumeError::Order(format!(
                "{address} has another volume of this name"
            )));
        }
        let promise = Promise {
            volume: self.shape.id,
            epoch,
            owner,
            protocol: PROTOCOL,
        };
        link.promise(&promise)?;
        let pipeline = Box::new(link.pipeline()?);
        self.session += 1;
        let (session, whole) = (self.session, known.whole);
        self.send(Event::Connected {
            server,
            session,
            pipeline,
            whole,
        })?;
        if !self.wait_for_start(server, session)? {
            return Ok(false);
        }
        let in_sync = self.in_sync();
        let mut links = self.links.clone();
        links[server] = Some(link.clone());
        let members = Members {
            shape: &self.shape,
            epoch,
            links: &links,
        };
        members.bring(server, in_sync)?;
        if !whole {
            self.confirm(&promise)?;
        }
        let volume = self.shape.id;
        link.join(&Named { volume, epoch })?;
        self.links[server] = Some(link);
        self.send(Event::Joined { server, session })?;
        tracing::info!(server, "a copy of the volume is up to date again");
        Ok(true)
    }

    /// Waits until the engine sends the server all writes: before, nothing that is compared would stay so.
    fn wait_for_start(&mut self, server: usize, session: u64) -> Result<bool, VolumeError> {
        let until = Instant::now() + STARTED_WITHIN;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.told.recv_timeout(left) {
                Ok(Told::Started(started)) if started == session => return Ok(true),
                Ok(Told::Started(_)) => {}
                // Its connection of a try before has ended, which was not brought to its end.
                Ok(Told::Out(out)) if out == server => {}
                Ok(Told::Out(out)) => {
                    self.links[out] = None;
                    return Ok(false);
                }
                Ok(Told::Reopen) => {
                    self.reopen()?;
                    return Ok(false);
                }
                Ok(Told::End) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(VolumeError::System("the volume is closed".into()));
                }
                // The volume's user does not poll it at the moment.
                Err(RecvTimeoutError::Timeout) => return Ok(false),
            }
        }
    }

    /// Before a copy counts that had lost what it had: what it had promised is lost, too, so a majority without it must
    /// say that nobody else has opened the volume.
    fn confirm(&self, promise: &Promise) -> Result<(), VolumeError> {
        let mut promised = 0;
        for (server, other) in self.links.iter().enumerate() {
            if let Some(other) = other {
                other.promise(promise)?;
                promised |= 1 << server;
            }
        }
        if let Err(have) = is_enough(&self.shape, promised) {
            let why = "a copy that was lost is built from the others".into();
            return Err(VolumeError::TooFew {
                have,
                want: self.shape.majority(),
                why,
            });
        }
        Ok(())
    }

    /// Opens the volume anew, for as long as it takes: the engine's patience ends it.
    fn reopen(&mut self) -> Result<bool, VolumeError> {
        loop {
            self.links.fill(None);
            let opened = open::open(&self.name, &self.addresses, &self.options, Some(self.mine));
            let opened = opened.and_then(|opened| Ok((pipelines(&opened)?, opened)));
            match opened {
                Ok((pipelines, opened)) => {
                    self.mine.epoch = opened.epoch;
                    self.links = opened.links;
                    self.session += 1;
                    let (epoch, session) = (opened.epoch, self.session);
                    self.send(Event::Reopened {
                        epoch,
                        session,
                        pipelines,
                    })?;
                    return Ok(true);
                }
                Err(VolumeError::Replaced) => return self.replaced(),
                Err(error) => tracing::debug!(%error, "the volume cannot be opened anew yet"),
            }
            match self.told.recv_timeout(TRY_EVERY) {
                Ok(Told::End) | Err(RecvTimeoutError::Disconnected) => return Ok(false),
                _ => {}
            }
        }
    }
}
