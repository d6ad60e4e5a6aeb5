//! Calls to the metadata server: repeated until they are answered, and executed once.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dunlin::{CallError, Client, ClientBuilder, Preset, Secret};
use serde::de::DeserializeOwned;

use super::FsError;
use crate::types::{Attr, Errno, Ino, Outcome, Refused, SessionId, SLOTS};
use crate::wire::{decode, encode, meta, Answer, Ask, Change, Envelope, Watch, Watched, Welcome};

/// The options of a client.
#[derive(Clone, Debug)]
pub struct FsOptions {
    /// The RPC preset of metadata calls.
    pub preset: Preset,
    /// The device to use for metadata and files, as [`ClientBuilder::device`] names it; `None` takes the best one that
    /// client and server have.
    pub device: Option<String>,
    /// The secret that the servers require.
    pub secret: Option<Secret>,
    /// Time for which an operation is retried while a server does not answer.
    pub patience: Duration,
}

impl Default for FsOptions {
    fn default() -> Self {
        Self {
            preset: Preset::Auto,
            device: None,
            secret: None,
            patience: Duration::from_secs(30),
        }
    }
}

impl FsOptions {
    /// The settings of an RPC client.
    pub(super) fn builder(&self) -> ClientBuilder {
        let mut builder = Client::builder().preset(self.preset).deadline(CALL_WITHIN);
        if let Some(device) = &self.device {
            builder = builder.device(device);
        }
        match &self.secret {
            Some(secret) => builder.secret(secret.clone()),
            None => builder,
        }
    }
}

/// Time after which a call is repeated: it is identical, so this is safe.
const CALL_WITHIN: Duration = Duration::from_secs(5);
/// Interval between two attempts at an unreachable server.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// A session at a metadata server, for calls. It is not renewed automatically: each change renews it, and
/// [`super::FileSystem`] renews its own.
#[derive(Debug)]
pub struct MetaClient {
    client: Client,
    address: String,
    patience: Duration,
    session: Mutex<Session>,
    freed: Condvar,
}

#[derive(Debug)]
struct Session {
    name: SessionId,
    /// Slots without an outstanding change, with the number of the next.
    free: Vec<(u16, u32)>,
}

fn slots() -> Vec<(u16, u32)> {
    (0..SLOTS).rev().map(|slot| (slot, 1)).collect()
}

impl MetaClient {
    /// Connects and begins a session.
    ///
    /// # Errors
    /// See [`FsError`].
    pub fn connect(address: &str, options: &FsOptions) -> Result<(Self, Welcome), FsError> {
        let client = options.builder().connect(address)?;
        let meta = Self {
            client,
            address: address.to_owned(),
            patience: options.patience,
            session: Mutex::new(Session {
                name: 0,
                free: Vec::new(),
            }),
            freed: Condvar::new(),
        };
        let welcome = meta.hello()?;
        Ok((meta, welcome))
    }

    /// Begins another session, in which changes are made from now on.
    ///
    /// # Errors
    /// See [`FsError`].
    pub fn hello(&self) -> Result<Welcome, FsError> {
        let welcome: Welcome = self.call(meta::HELLO, &[], CALL_WITHIN)?.0?;
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        (session.name, session.free) = (welcome.session, slots());
        self.freed.notify_all();
        Ok(welcome)
    }

    /// Ends all outstanding calls: no more calls are made.
    pub(super) fn close(&self) {
        self.client.close();
    }

    /// The current session, in which changes are made.
    pub fn session(&self) -> SessionId {
        self.session
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .name
    }

    /// Calls until there is an answer; also returns the number of attempts.
    fn call<T: DeserializeOwned>(
        &self,
        handler: u16,
        payload: &[u8],
        within: Duration,
    ) -> Result<(Outcome<T>, u32), FsError> {
        let began = Instant::now();
        let client = self.client.within(within);
        let mut tries = 1;
        loop {
            let error = match client.call(handler, payload) {
                Ok(reply) => {
                    let strange = || {
                        FsError::Strange(self.address.clone(), "unexpected kind of answer".into())
                    };
                    return Ok((decode::<Outcome<T>>(&reply).ok_or_else(strange)?, tries));
                }
                Err(CallError::Handler { message, .. }) => {
                    return Err(FsError::Strange(self.address.clone(), message))
                }
                Err(error @ (CallError::UnknownHandler(_) | CallError::TooLong { .. })) => {
                    return Err(FsError::Strange(self.address.clone(), error.to_string()))
                }
                Err(error) => error,
            };
            if began.elapsed() >= self.patience
                || matches!(error, CallError::Closed | CallError::Forked)
            {
                return Err(FsError::Unreachable {
                    address: self.address.clone(),
                    seconds: self.patience.as_secs(),
                    source: Box::new(error),
                });
            }
            tracing::debug!(%error, "retrying a call to the metadata server");
            std::thread::sleep(TRY_EVERY);
            tries += 1;
        }
    }

    /// Sends a query.
    ///
    /// # Errors
    /// See [`FsError`].
    pub fn ask(&self, ask: &Ask<'_>) -> Result<Answer, FsError> {
        let payload = encode(ask);
        let outcome = self.call(meta::ASK, &payload, CALL_WITHIN)?.0;
        match outcome {
            Err(Refused(Errno::AGAIN)) => {
                Ok(self.call(meta::ASK_DURABLE, &payload, CALL_WITHIN)?.0?)
            }
            other => Ok(other?),
        }
    }

    /// Sends a query for attributes.
    ///
    /// # Errors
    /// See [`FsError`].
    pub fn ask_attr(&self, ask: &Ask<'_>) -> Result<Attr, FsError> {
        self.attr_of(self.ask(ask)?)
    }

    /// Makes a change, exactly once.
    ///
    /// # Errors
    /// See [`FsError`]. ESTALE if the session has ended: then it was not executed, unless it was sent more than once.
    pub fn change(&self, change: Change<'_>) -> Result<Answer, FsError> {
        self.change_in_session(change).1
    }

    /// The same; also returns the session.
    pub(super) fn change_in_session(
        &self,
        change: Change<'_>,
    ) -> (SessionId, Result<Answer, FsError>) {
        let within = match change {
            Change::Lease { .. } => self.patience.min(CALL_WITHIN),
            _ => CALL_WITHIN,
        };
        let (session, slot, sequence) = self.take_slot();
        let envelope = Envelope {
            session,
            slot,
            sequence,
            change,
        };
        let called = self.call(meta::CHANGE, &encode(&envelope), within);
        self.give_slot(session, slot, sequence.wrapping_add(1));
        let outcome = match called {
            // It may have been executed before the session ended, which can no longer be determined.
            Ok((Err(Refused(Errno::STALE)), 2..)) => Err(Errno::IO.into()),
            Ok((outcome, _)) => outcome.map_err(FsError::from),
            Err(error) => Err(error),
        };
        (session, outcome)
    }

    /// Makes a change that returns attributes.
    ///
    /// # Errors
    /// See [`MetaClient::change`].
    pub fn change_attr(&self, change: Change<'_>) -> Result<Attr, FsError> {
        self.attr_of(self.change(change)?)
    }

    fn attr_of(&self, answer: Answer) -> Result<Attr, FsError> {
        match answer {
            Answer::Attr(attr) => Ok(attr),
            other => Err(self.strange(&other)),
        }
    }

    pub(super) fn strange(&self, answer: &Answer) -> FsError {
        FsError::Strange(
            self.address.clone(),
            format!("unexpected answer {answer:?}"),
        )
    }

    /// Returns all entries of a directory: names, numbers, kinds.
    ///
    /// # Errors
    /// See [`FsError`].
    pub fn read_dir(&self, ino: Ino) -> Result<Vec<(Vec<u8>, Ino, u32)>, FsError> {
        let mut all: Vec<(Vec<u8>, Ino, u32)> = Vec::new();
        loop {
            let after = all.last().map_or(&[][..], |(name, ..)| name);
            let bytes = READ_DIR_BYTES;
            match self.ask(&Ask::ReadDir { ino, after, bytes })? {
                Answer::Entries { entries, end } => {
                    let end = end || entries.is_empty();
                    all.extend(entries);
                    if end {
                        return Ok(all);
                    }
                }
                other => return Err(self.strange(&other)),
            }
        }
    }

    /// Renews the session; waits up to a quarter of its lease for leases that are recalled.
    pub(super) fn watch(
        &self,
        epoch: u64,
        within: Duration,
    ) -> Result<Outcome<Watched>, CallError> {
        let session = self.session();
        let reply = self
            .client
            .within(within)
            .call(meta::WATCH, &encode(&Watch { session, epoch }))?;
        decode(&reply).ok_or_else(|| CallError::Unreadable("invalid answer to WATCH".into()))
    }

    fn take_slot(&self) -> (SessionId, u16, u32) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some((slot, sequence)) = session.free.pop() {
                return (session.name, slot, sequence);
            }
            let waited = self.freed.wait(session);
            session = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_slot(&self, of: SessionId, slot: u16, next: u32) {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if session.name == of {
            session.free.push((slot, next));
            self.freed.notify_one();
        }
    }
}

/// Bytes of names requested at once.
const READ_DIR_BYTES: u32 = 64 << 10;
