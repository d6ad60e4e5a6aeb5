//! The thread that brings servers back: it connects, compares, copies, and opens the volume again if too few were left.
//! It also rewrites damaged blocks. It sleeps while all are in sync.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use dunlin::Pipeline;

use super::calls::Calls;
use super::engine::Blamed;
use super::link::Link;
use super::open::{self, is_enough, Mine, Opened};
use super::repair::Members;
use super::{VolumeError, VolumeOptions};
use crate::types::Shape;
use crate::wire::{Described, Named, Promise, PROTOCOL};

/// Interval between two attempts at servers that are out.
const TRY_EVERY: Duration = Duration::from_millis(100);

/// Maximum number of reads of damaged blocks that wait to be followed up: a later read of the others reports them again.
const MOST_DAMAGED: usize = 256;

/// A notification from the engine to the thread.
#[derive(Debug)]
pub(super) enum Told {
    /// A server is out.
    Out(usize),
    /// The server that was connected in this session gets all writes from now on.
    Started(u64),
    /// A server could not deliver some of these blocks.
    Damaged(usize, Blamed),
    /// Too few servers are left.
    Reopen,
    /// The volume is closed.
    End,
}

/// A notification from the thread to the engine.
pub(super) enum Event {
    /// A server is connected, and should get all writes.
    Connected {
        server: usize,
        session: u64,
        pipeline: Box<Pipeline>,
        whole: bool,
    },
    /// It is up to date.
    Joined { server: usize, session: u64 },
    /// This number of damaged blocks of a copy was written again.
    Rewritten(u64),
    /// The volume was opened again.
    Reopened {
        epoch: u64,
        session: u64,
        pipelines: Vec<Option<Pipeline>>,
    },
    /// Another client has opened it.
    Replaced,
}

/// Notifications of the engine that the thread has not handled yet.
pub(super) struct Orders {
    told: Receiver<Told>,
    /// The volume is closed.
    ended: bool,
    /// Too few servers are left.
    reopen: bool,
    /// Servers that are out.
    out: u64,
    /// The last session whose server gets all writes.
    started: u64,
    /// Servers, and the blocks of which some could not be read there.
    damaged: VecDeque<(usize, Blamed)>,
}

impl Orders {
    pub(super) fn new(told: Receiver<Told>) -> Self {
        Self {
            told,
            ended: false,
            reopen: false,
            out: 0,
            started: 0,
            damaged: VecDeque::new(),
        }
    }

    /// Records a notification, so that none is lost whichever one the thread is waiting for.
    fn note(&mut self, told: Result<Told, RecvTimeoutError>) {
        match told {
            Ok(Told::Out(server)) => self.out |= 1 << server,
            Ok(Told::Started(session)) => self.started = session,
            Ok(Told::Damaged(server, blocks)) => {
                let one = (server, blocks);
                if self.damaged.len() < MOST_DAMAGED && !self.damaged.contains(&one) {
                    self.damaged.push_back(one);
                }
            }
            Ok(Told::Reopen) => self.reopen = true,
            Ok(Told::End) | Err(RecvTimeoutError::Disconnected) => self.ended = true,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }

    /// Waits at most this long for a notification; returns whether there was one.
    fn wait(&mut self, most: Duration) -> bool {
        let told = self.told.recv_timeout(most);
        let is_told = !matches!(told, Err(RecvTimeoutError::Timeout));
        self.note(told);
        is_told
    }

    /// Waits for a notification.
    fn sleep(&mut self) {
        let told = self.told.recv();
        self.note(told.map_err(|_| RecvTimeoutError::Disconnected));
    }

    /// Whether something must be done before a server is brought back.
    fn is_urgent(&self) -> bool {
        self.ended || self.reopen
    }

    /// Records the notifications that have arrived meanwhile.
    fn hear(&mut self) {
        loop {
            match self.told.try_recv() {
                Ok(told) => self.note(Ok(told)),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => return self.ended = true,
            }
        }
    }

    /// Whether a server may still be brought back using these servers, itself included.
    fn lets_bring(&mut self, servers: u64) -> Result<(), VolumeError> {
        self.hear();
        match self.is_urgent() || self.out & servers != 0 {
            true => Err(VolumeError::System(
                "another copy was lost in the meantime, or the volume is closed".into(),
            )),
            false => Ok(()),
        }
    }

    /// Whether the volume may still be opened again: all other notifications that arrive meanwhile refer to the time
    /// before.
    fn lets_open(&mut self) -> Result<(), VolumeError> {
        self.hear();
        match self.ended {
            true => Err(VolumeError::System("the volume is closed".into())),
            false => Ok(()),
        }
    }
}

/// The keeper; see the module's documentation.
pub(super) struct Keeper {
    pub(super) name: String,
    pub(super) addresses: Vec<String>,
    pub(super) options: VolumeOptions,
    pub(super) calls: Calls,
    pub(super) shape: Shape,
    pub(super) mine: Mine,
    pub(super) links: Vec<Option<Link>>,
    pub(super) orders: Orders,
    pub(super) tell: Sender<Event>,
    /// Wakes the engine.
    pub(super) wake: Box<dyn Fn() + Send>,
    pub(super) session: u64,
}

/// The lanes to the opened servers.
pub(super) fn pipelines(opened: &Opened) -> Result<Vec<Option<Pipeline>>, VolumeError> {
    let links = opened.links.iter();
    links
        .map(|link| link.as_ref().map(Link::pipeline).transpose())
        .collect()
}

impl Keeper {
    pub(super) fn run(mut self) {
        while !self.orders.ended {
            if let Err(VolumeError::Replaced) = self.turn() {
                return self.send(Event::Replaced);
            }
        }
    }

    /// Handles notifications, or makes an attempt. The only error after which it does not retry is that the volume was
    /// replaced.
    fn turn(&mut self) -> Result<(), VolumeError> {
        if self.orders.reopen {
            return self.reopen();
        }
        self.forget_out();
        if let Some((server, blocks)) = self.orders.damaged.pop_front() {
            return match self.rewrite(server, blocks) {
                Err(VolumeError::Replaced) => Err(VolumeError::Replaced),
                Err(error) => {
                    tracing::warn!(%error, server, block = blocks.0, "cannot rewrite a damaged block");
                    Ok(())
                }
                Ok(()) => Ok(()),
            };
        }
        if self.links.iter().all(Option::is_some) {
            self.orders.sleep();
            return Ok(());
        }
        if self.orders.wait(TRY_EVERY) {
            return Ok(());
        }
        for server in 0..self.links.len() {
            if self.links[server].is_some() || self.orders.is_urgent() {
                continue;
            }
            match self.bring_back(server) {
                Ok(()) => {}
                Err(VolumeError::Replaced) => return Err(VolumeError::Replaced),
                Err(error) => {
                    tracing::debug!(%error, server, "cannot bring back a copy yet");
                }
            }
        }
        Ok(())
    }

    /// Drops everything that concerns servers that are out.
    fn forget_out(&mut self) {
        let out = std::mem::take(&mut self.orders.out);
        for (server, link) in self.links.iter_mut().enumerate() {
            if out & 1 << server != 0 {
                *link = None;
            }
        }
    }

    fn send(&mut self, event: Event) {
        // If the receiver is gone the volume has been closed.
        self.orders.ended |= self.tell.send(event).is_err();
        (self.wake)();
    }

    fn in_sync(&self) -> u64 {
        let links = self.links.iter().enumerate();
        links
            .filter(|(_, link)| link.is_some())
            .fold(0, |set, (server, _)| set | 1 << server)
    }

    /// Connects a server and brings it up to date, unless something else must be done first.
    fn bring_back(&mut self, server: usize) -> Result<(), VolumeError> {
        let address = &self.addresses[server];
        let link = Link::connect(address, &self.options, &self.calls)?;
        let Mine { epoch, owner } = self.mine;
        let known = match link.describe(&self.name) {
            Ok(known) => known,
            Err(error) if error.is_unknown() => {
                // It has lost its data, or never had any.
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
                "{address} has a different volume of this name"
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
        });
        if !self.wait_for_start(session) {
            return Ok(());
        }
        // Its own connection of an earlier attempt may be among them, which has ended.
        self.forget_out();
        let in_sync = self.in_sync();
        let mut links = self.links.clone();
        links[server] = Some(link.clone());
        let members = Members {
            shape: &self.shape,
            epoch,
            links: &links,
        };
        let orders = &mut self.orders;
        members.bring(server, in_sync, &mut || {
            orders.lets_bring(in_sync | 1 << server)
        })?;
        if !whole {
            self.confirm(&promise)?;
        }
        let volume = self.shape.id;
        link.join(&Named { volume, epoch })?;
        self.links[server] = Some(link);
        self.send(Event::Joined { server, session });
        tracing::info!(server, "a copy of the volume is up to date again");
        Ok(())
    }

    /// Writes those of some blocks that a copy in sync cannot deliver again, as another one has them: under their
    /// existing versions, so that a write of the user in the meantime is not undone. A later read that finds the damage
    /// repeats it.
    fn rewrite(&mut self, server: usize, (first, count): Blamed) -> Result<(), VolumeError> {
        let Some(link) = self.links[server].clone() else {
            // It is out, and compared by versions when it comes back; a read then finds the damage again.
            return Ok(());
        };
        let (volume, epoch) = (self.shape.id, self.mine.epoch);
        let damaged = |blocks: &[u64]| -> Result<Vec<u64>, VolumeError> {
            let read = link.read(volume, epoch, blocks)?;
            let unread = blocks.iter().zip(read).filter(|(_, read)| read.is_none());
            Ok(unread.map(|(block, _)| *block).collect())
        };
        let blocks: Vec<u64> = (first..first + u64::from(count)).collect();
        let blocks = damaged(&blocks)?;
        let others = self.in_sync() & self.shape.set_of(self.shape.chunk(first)) & !(1 << server);
        let members = Members {
            shape: &self.shape,
            epoch,
            links: &self.links,
        };
        let good = members.read(blocks.iter().map(|block| (*block, others)).collect())?;
        link.write(volume, epoch, &good.iter().collect::<Vec<_>>())?;
        // A server of an earlier version does not take a version again that it has.
        let left = damaged(&blocks)?;
        if let Some(block) = left.first() {
            tracing::warn!(
                server,
                block,
                "a copy still cannot deliver a block that was written to it again"
            );
        }
        let rewritten = (blocks.len() - left.len()) as u64;
        if rewritten > 0 {
            tracing::warn!(
                server,
                blocks = rewritten,
                first,
                "rewrote damaged blocks of a copy from another one"
            );
            self.send(Event::Rewritten(rewritten));
        }
        Ok(())
    }

    /// Waits until the engine sends the server all writes: before that, nothing that is compared would stay equal.
    /// Returns `false` if something else must be done first. It waits until the volume's user polls, however long that
    /// takes: another attempt would only add another connection that is not used.
    fn wait_for_start(&mut self, session: u64) -> bool {
        while self.orders.started != session {
            if self.orders.is_urgent() {
                return false;
            }
            self.orders.sleep();
        }
        true
    }

    /// Called before a copy that had lost its data counts: the promises that it had given are lost, too, so a majority
    /// without it must confirm that nobody else has opened the volume.
    fn confirm(&self, promise: &Promise) -> Result<(), VolumeError> {
        let mut promised = 0;
        for (server, other) in self.links.iter().enumerate() {
            if let Some(other) = other {
                other.promise(promise)?;
                promised |= 1 << server;
            }
        }
        if let Err(have) = is_enough(&self.shape, promised) {
            let why = "a lost copy is being rebuilt from the others".into();
            return Err(VolumeError::TooFew {
                have,
                want: self.shape.majority(),
                why,
            });
        }
        Ok(())
    }

    /// Opens the volume again, or fails so that it is retried: the engine's patience ends this.
    fn reopen(&mut self) -> Result<(), VolumeError> {
        self.links.fill(None);
        let orders = &mut self.orders;
        let opened = open::open(
            &self.name,
            &self.addresses,
            (&self.options, &self.calls),
            Some(self.mine),
            &mut || orders.lets_open(),
        );
        let opened = opened.and_then(|opened| Ok((pipelines(&opened)?, opened)));
        match opened {
            Ok((pipelines, opened)) => {
                // The engine loses no more servers until it has these.
                (self.orders.reopen, self.orders.out) = (false, 0);
                self.mine.epoch = opened.epoch;
                self.links = opened.links;
                self.session += 1;
                let (epoch, session) = (opened.epoch, self.session);
                self.send(Event::Reopened {
                    epoch,
                    session,
                    pipelines,
                });
            }
            Err(VolumeError::Replaced) => return Err(VolumeError::Replaced),
            Err(error) => {
                tracing::debug!(%error, "cannot open the volume again yet");
                self.orders.wait(TRY_EVERY);
            }
        }
        Ok(())
    }
}
