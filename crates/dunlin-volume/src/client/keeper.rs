//! The thread that brings servers back: it connects, compares, copies, and opens the volume anew where too few were
//! left. It is asleep while all are there.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use dunlin::Pipeline;

use super::link::Link;
use super::open::{self, is_enough, Mine, Opened};
use super::repair::Members;
use super::{VolumeError, VolumeOptions};
use crate::types::Shape;
use crate::wire::{Described, Named, Promise, PROTOCOL};

/// Between two tries at servers that are out.
const TRY_EVERY: Duration = Duration::from_millis(100);

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

/// What the engine has told and the thread has not done yet.
pub(super) struct Orders {
    told: Receiver<Told>,
    /// The volume is closed.
    ended: bool,
    /// Too few are left.
    reopen: bool,
    /// Servers that are out.
    out: u64,
    /// The last session of which the server gets all writes.
    started: u64,
}

impl Orders {
    pub(super) fn new(told: Receiver<Told>) -> Self {
        Self {
            told,
            ended: false,
            reopen: false,
            out: 0,
            started: 0,
        }
    }

    /// Nothing that is told is lost, whoever is waiting for something else when it comes.
    fn note(&mut self, told: Result<Told, RecvTimeoutError>) {
        match told {
            Ok(Told::Out(server)) => self.out |= 1 << server,
            Ok(Told::Started(session)) => self.started = session,
            Ok(Told::Reopen) => self.reopen = true,
            Ok(Told::End) | Err(RecvTimeoutError::Disconnected) => self.ended = true,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }

    /// Waits until something is told, at most so long; whether something was.
    fn wait(&mut self, most: Duration) -> bool {
        let told = self.told.recv_timeout(most);
        let is_told = !matches!(told, Err(RecvTimeoutError::Timeout));
        self.note(told);
        is_told
    }

    /// Waits until something is told.
    fn sleep(&mut self) {
        let told = self.told.recv();
        self.note(told.map_err(|_| RecvTimeoutError::Disconnected));
    }

    /// Whether something is to be done before a server is brought back.
    fn is_urgent(&self) -> bool {
        self.ended || self.reopen
    }

    /// Hears what was told meanwhile.
    fn hear(&mut self) {
        loop {
            match self.told.try_recv() {
                Ok(told) => self.note(Ok(told)),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => return self.ended = true,
            }
        }
    }

    /// Whether a server may still be brought back with these, itself among them.
    fn lets_bring(&mut self, servers: u64) -> Result<(), VolumeError> {
        self.hear();
        match self.is_urgent() || self.out & servers != 0 {
            true => Err(VolumeError::System(
                "another copy was lost meanwhile, or the volume is closed".into(),
            )),
            false => Ok(()),
        }
    }

    /// Whether the volume may still be opened anew: all else that is told meanwhile is about what was before.
    fn lets_open(&mut self) -> Result<(), VolumeError> {
        self.hear();
        match self.ended {
            true => Err(VolumeError::System("the volume is closed".into())),
            false => Ok(()),
        }
    }
}

/// See the module.
pub(super) struct Keeper {
    pub(super) name: String,
    pub(super) addresses: Vec<String>,
    pub(super) options: VolumeOptions,
    pub(super) shape: Shape,
    pub(super) mine: Mine,
    pub(super) links: Vec<Option<Link>>,
    pub(super) orders: Orders,
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
        while !self.orders.ended {
            if let Err(VolumeError::Replaced) = self.turn() {
                return self.send(Event::Replaced);
            }
        }
    }

    /// What was told is done, or something is tried. The only error that is not for another try is that the volume was
    /// replaced.
    fn turn(&mut self) -> Result<(), VolumeError> {
        if self.orders.reopen {
            return self.reopen();
        }
        self.forget_out();
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
                    tracing::debug!(%error, server, "a copy cannot be brought back yet");
                }
            }
        }
        Ok(())
    }

    /// Nothing is done with servers that are out.
    fn forget_out(&mut self) {
        let out = std::mem::take(&mut self.orders.out);
        for (server, link) in self.links.iter_mut().enumerate() {
            if out & 1 << server != 0 {
                *link = None;
            }
        }
    }

    fn send(&mut self, event: Event) {
        // Who does not hear it has closed the volume.
        self.orders.ended |= self.tell.send(event).is_err();
        (self.wake)();
    }

    fn in_sync(&self) -> u64 {
        let links = self.links.iter().enumerate();
        links
            .filter(|(_, link)| link.is_some())
            .fold(0, |set, (server, _)| set | 1 << server)
    }

    /// Connects a server and brings it up to date, unless something else is to be done first.
    fn bring_back(&mut self, server: usize) -> Result<(), VolumeError> {
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
        });
        if !self.wait_for_start(session) {
            return Ok(());
        }
        // Its own connection of a try before may be among them, which has ended.
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

    /// Waits until the engine sends the server all writes: before, nothing that is compared would stay so. `false`:
    /// something else is to be done first. It takes until the volume's user polls it, however long that is: another
    /// try would only be one more connection that nobody takes.
    fn wait_for_start(&mut self, session: u64) -> bool {
        while self.orders.started != session {
            if self.orders.is_urgent() {
                return false;
            }
            self.orders.sleep();
        }
        true
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

    /// Opens the volume anew, or is told to try again: the engine's patience ends it.
    fn reopen(&mut self) -> Result<(), VolumeError> {
        self.links.fill(None);
        let orders = &mut self.orders;
        let opened = open::open(
            &self.name,
            &self.addresses,
            &self.options,
            Some(self.mine),
            &mut || orders.lets_open(),
        );
        let opened = opened.and_then(|opened| Ok((pipelines(&opened)?, opened)));
        match opened {
            Ok((pipelines, opened)) => {
                // The engine loses nothing more before it has these.
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
                tracing::debug!(%error, "the volume cannot be opened anew yet");
                self.orders.wait(TRY_EVERY);
            }
        }
        Ok(())
    }
}
