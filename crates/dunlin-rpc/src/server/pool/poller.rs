//! The poller that serves clients over message pools.

mod notifications;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dunlin_verbs::{thread, Device};

use super::long_calls::LongCalls;
use super::turns::{Failed, Turns};
use crate::admission::grouping::groups::Rules;
use crate::admission::grouping::pace::Pace;
use crate::channel::pool::{Mapping, ServedPool};
use crate::channel::ChannelError;
use crate::server::connection::{Connection, Context};
use crate::server::connection_ids::place_of;
use crate::server::dispatch::Finished;
use crate::server::mailbox::{Mail, Mailbox};
use crate::server::places::Places;
use crate::server::rounds::Rounds;
use crate::server::threads::HasMailbox;
use crate::HandlerId;

/// Number of completions that notify of messages, taken in one pass.
const NOTIFICATIONS_BUDGET: usize = 32;
/// Passes between two polls of the endpoint entries while there is other work.
const PASSES_PER_FETCH: u32 = 4;

/// A poller's clients, by number.
pub(super) type Members<D> = Vec<Option<Connection<ServedPool<D>>>>;

/// An accepted client.
pub(super) struct Newcomer<D: Device> {
    pub(super) number: u32,
    /// Its group, if servers change turns in step.
    pub(super) group: Option<usize>,
    pub(super) connection: Connection<ServedPool<D>>,
}

/// The part of a poller that other threads use.
pub(super) struct PollerHandle<D: Device> {
    pub(super) mailbox: Mailbox<Newcomer<D>, D::CompletionChannel>,
    pub(super) numbers: Mutex<Places>,
    /// Entries and zones of the clients that take turns.
    pub(super) memory: OnceLock<D::Region>,
    /// The completion queue that notifies of messages, and the number of clients that use it. Apart from the poller,
    /// only the thread that makes a client's queue pair locks it, and the poller does not wait for that.
    pub(super) notifications: Mutex<Option<D::CompletionQueue>>,
    pub(super) notified: AtomicUsize,
    /// Number of clients of each group, if servers change turns in step.
    pub(super) in_groups: Vec<AtomicUsize>,
}

impl<D: Device> PollerHandle<D> {
    pub(super) fn new(wake: D::CompletionChannel, clients: usize, groups: usize) -> Arc<Self> {
        Arc::new(Self {
            mailbox: Mailbox::new(wake),
            numbers: Mutex::new(Places::new(clients)),
            memory: OnceLock::new(),
            notifications: Mutex::new(None),
            notified: AtomicUsize::new(0),
            in_groups: (0..groups).map(|_| AtomicUsize::new(0)).collect(),
        })
    }
}

impl<D: Device> HasMailbox for PollerHandle<D> {
    type Newcomer = Newcomer<D>;
    type Wake = D::CompletionChannel;

    fn mailbox(&self) -> &Mailbox<Newcomer<D>, D::CompletionChannel> {
        &self.mailbox
    }
}

/// The part of a poller that its thread owns.
pub(super) struct Poller<D: Device> {
    handle: Arc<PollerHandle<D>>,
    context: Context,
    members: Members<D>,
    turns: Turns,
    /// Clients with zones of their own, which are polled.
    fixed: Vec<u32>,
    /// Clients that have notified of messages, each once.
    notified: Vec<u32>,
    /// Clients whose turn is over and whose long requests are still being fetched.
    still_fetching: Vec<u32>,
    failed: Vec<Failed>,
    overwritten: Vec<u32>,
    long_calls: LongCalls,
    /// When the last pass ended, if it served a client.
    served_at: Option<Instant>,
    passes: u32,
}

impl<D: Device> Poller<D> {
    pub(super) fn new(
        handle: Arc<PollerHandle<D>>,
        context: Context,
        rules: Rules,
        pace: Option<Pace>,
    ) -> Self {
        Self {
            handle,
            context,
            members: Vec::new(),
            turns: Turns::new(rules, pace, thread::now()),
            fixed: Vec::new(),
            notified: Vec::new(),
            still_fetching: Vec::new(),
            failed: Vec::new(),
            overwritten: Vec::new(),
            long_calls: LongCalls::new(Duration::from_nanos(rules.slice_ns)),
            served_at: None,
            passes: 0,
        }
    }

    #[cold]
    fn take_mail(&mut self) -> usize {
        let mail = self.handle.mailbox.take();
        let count = mail.len();
        for item in mail {
            match item {
                Mail::Adopt(newcomer) => self.adopt(*newcomer),
                Mail::Finished(Finished {
                    connection,
                    call,
                    outcome,
                }) => {
                    let number = place_of(connection);
                    let client = self.members.get_mut(number as usize);
                    let client = client.and_then(Option::as_mut);
                    // A client that has left needs no answer.
                    if let Some(client) = client.filter(|client| client.id == connection) {
                        if let Err(error) = client.finished(call, outcome) {
                            self.failed.push((number, error));
                        }
                    }
                }
            }
        }
        if self.handle.mailbox.is_draining() {
            self.each(|client, _| client.drain());
        }
        count
    }

    fn adopt(&mut self, newcomer: Newcomer<D>) {
        let index = newcomer.number as usize;
        if self.members.len() <= index {
            self.members.resize_with(index + 1, || None);
        }
        let mapping = newcomer.connection.channel.mapping();
        self.members[index] = Some(newcomer.connection);
        match mapping {
            Mapping::Polled => self.fixed.push(newcomer.number),
            Mapping::ByTurns => match newcomer.group {
                Some(group) => self.turns.groups.login_to(newcomer.number, group),
                None => self.turns.groups.login(newcomer.number),
            },
            Mapping::Notified => {}
        }
    }

    /// Whether something has arrived that need not wait for its slot.
    #[cold]
    fn has_work_now(&self) -> bool {
        let waits =
            |client: &Connection<ServedPool<D>>| matches!(client.channel.wants_turn(), Ok(true));
        let mut clients = self.members.iter().flatten();
        clients.any(|client| client.has_arrival() && !waits(client))
            || self.turns.until_wanted(thread::now(), &self.members) == Some(Duration::ZERO)
    }

    /// Ends the clients that have failed.
    #[cold]
    fn end_failed(&mut self) {
        for (number, error) in std::mem::take(&mut self.failed) {
            let Some(client) = self.members[number as usize].take() else {
                continue;
            };
            let (place, mapping) = (client.channel.place(), client.channel.mapping());
            let id = client.end(&error, &self.context);
            // Only now, because the client's place and its number are free then.
            match mapping {
                Mapping::Polled => self.fixed.retain(|&other| other != number),
                Mapping::ByTurns => {
                    let group = self.turns.groups.of(number);
                    if let Some(count) = group.and_then(|group| self.handle.in_groups.get(group)) {
                        count.fetch_sub(1, Ordering::Relaxed);
                    }
                    self.turns.leave(number, place);
                }
                Mapping::Notified => {
                    self.notified.retain(|&other| other != number);
                    self.handle.notified.fetch_sub(1, Ordering::Relaxed);
                }
            }
            self.still_fetching.retain(|&other| other != number);
            let numbers = self.handle.numbers.lock();
            numbers
                .unwrap_or_else(PoisonError::into_inner)
                .give_back(number);
            self.handle.mailbox.left(id);
        }
    }

    /// Runs an action on all clients; one on which it fails ends.
    fn each(
        &mut self,
        mut action: impl FnMut(&mut Connection<ServedPool<D>>, &Context) -> Result<(), ChannelError>,
    ) {
        for (number, client) in self.members.iter_mut().enumerate() {
            let Some(client) = client else { continue };
            if let Err(error) = action(client, &self.context) {
                self.failed.push((number as u32, error));
            }
        }
        if !self.failed.is_empty() {
            self.end_failed();
        }
    }

    /// Serves the clients whose turn it is, those with zones of their own, those that have notified of messages, and
    /// those whose long requests are being fetched.
    #[inline]
    fn serve(&mut self) -> usize {
        let mut work = 0;
        let mut long = None;
        let mut notified = std::mem::take(&mut self.notified);
        let by_turns = self.turns.active.iter().chain(&self.turns.ending);
        let everybody = by_turns.chain(&self.fixed).chain(&notified);
        for &number in everybody {
            let Some(Some(client)) = self.members.get_mut(number as usize) else {
                continue;
            };
            let polled = match self.long_calls.is_watching() {
                false => client.poll(&self.context),
                true => watch(client, &self.context, &mut self.long_calls, &mut long),
            };
            let told = polled.and_then(|taken| client.channel.tell_turn().map(|()| taken));
            match told {
                Ok(taken) => work += taken,
                Err(error) => self.failed.push((number, error)),
            }
            if client.channel.is_overwritten() {
                self.overwritten.push(number);
            }
        }
        notified.retain(|&number| self.is_still_notified(number));
        self.notified = notified;
        if work > 0 && self.long_calls.is_watching() {
            self.long_calls.watched();
            if long.is_some_and(|handler| self.context.handlers.run_apart(handler)) {
                tracing::info!(
                    handler = long,
                    "calls of this handler take longer than a slice: workers run them from now on"
                );
            }
        }
        if !self.overwritten.is_empty() {
            self.end_overwritten();
        }
        if !self.still_fetching.is_empty() {
            work += self.poll_fetching();
        }
        work
    }

    /// Ends the turns of clients whose messages were overwritten by late ones.
    #[cold]
    fn end_overwritten(&mut self) {
        for number in std::mem::take(&mut self.overwritten) {
            let Some(Some(client)) = self.members.get_mut(number as usize) else {
                continue;
            };
            let place = client.channel.place();
            match client.channel.end_turn() {
                Ok(load) => {
                    self.context.counters.turn_ended(load.late, load.words);
                    self.turns.end_early(number, place);
                }
                Err(error) => self.failed.push((number, error)),
            }
            if client.is_fetching() {
                self.still_fetching.push(number);
            }
        }
    }

    #[cold]
    fn poll_fetching(&mut self) -> usize {
        let mut work = 0;
        let (members, failed, context) = (&mut self.members, &mut self.failed, &self.context);
        self.still_fetching.retain(|&number| {
            let Some(Some(client)) = members.get_mut(number as usize) else {
                return false;
            };
            match client.poll(context) {
                Ok(taken) => work += taken,
                Err(error) => failed.push((number, error)),
            }
            client.is_fetching()
        });
        work
    }

    /// Fetches requests of clients that wait for their turn, and changes turns. `served_at` is the time, if it is
    /// already known.
    #[inline]
    fn schedule(&mut self, served: usize, served_at: Option<Instant>) -> usize {
        let mut work = 0;
        if served == 0 && self.turns.are_one_group() {
            return self.turns.fetch_late(&mut self.members, &mut self.failed);
        }
        if served == 0 || self.passes % PASSES_PER_FETCH == 0 {
            let now = served_at.unwrap_or_else(thread::now);
            let (members, failed) = (&mut self.members, &mut self.failed);
            self.turns.end_turns(
                now,
                members,
                &self.context,
                &mut self.still_fetching,
                failed,
            );
            work += self.turns.fetch_late(members, failed);
            work += usize::from(self.turns.end_slice(now, members));
            work += self.turns.warm_up(members, failed);
            work += usize::from(self.turns.switch(now, members, &self.context, failed));
        }
        work
    }
}

/// Takes one request of a client, and determines whether it is a long call.
#[cold]
fn watch<D: Device>(
    client: &mut Connection<ServedPool<D>>,
    context: &Context,
    calls: &mut LongCalls,
    long: &mut Option<HandlerId>,
) -> Result<usize, ChannelError> {
    let began = thread::now();
    let (taken, handler) = client.poll_one(context)?;
    if let Some(handler) = handler {
        let took = thread::now().saturating_duration_since(began);
        if calls.ran(handler, took) {
            *long = Some(handler);
        }
    }
    Ok(taken)
}

impl<D: Device> Rounds for Poller<D> {
    #[inline]
    fn pass(&mut self) -> usize {
        let mut work = 0;
        if self.handle.mailbox.has_mail() {
            work += self.take_mail();
        }
        self.take_notifications();
        self.passes = self.passes.wrapping_add(1);
        let mut served_at = None;
        let served = if self.context.dispatch.has_workers() {
            // A pass starts when the one before it ended, unless that one found nothing: then the thread may have
            // rested.
            let began = self.served_at.take().unwrap_or_else(thread::now);
            let served = self.serve();
            if served > 0 {
                let now = thread::now();
                (served_at, self.served_at) = (Some(now), Some(now));
                self.long_calls.passed(now.saturating_duration_since(began));
            }
            served
        } else {
            self.serve()
        };
        work += served + self.schedule(served, served_at);
        if !self.failed.is_empty() {
            self.end_failed();
        }
        work
    }

    fn check(&mut self) {
        let now = thread::now();
        self.each(|client, context| client.check(now, context));
    }

    fn has_clients(&self) -> bool {
        self.handle.mailbox.has_clients()
    }

    fn is_over(&mut self) -> bool {
        if self.is_ending() {
            return true;
        }
        self.handle.mailbox.is_draining() && {
            self.each(|client, _| client.drain());
            let is_quiet = |client: &Connection<ServedPool<D>>| {
                client.is_quiet() && !client.channel.awaits_requests()
            };
            self.members.iter().flatten().all(is_quiet)
                && !self.handle.mailbox.has_mail()
                // A client whose turn is ending may have announced a request, which is taken when the turn has ended.
                && !self.turns.are_changing()
        }
    }

    fn is_ending(&self) -> bool {
        self.handle.mailbox.is_ending()
    }

    fn has_work(&mut self) -> bool {
        self.handle.mailbox.has_mail()
            || self.take_notifications() > 0
            || self.turns.are_changing()
            || match self.turns.are_paced() {
                false => self.members.iter().flatten().any(Connection::has_arrival),
                true => self.has_work_now(),
            }
    }

    fn longest_sleep(&mut self) -> Duration {
        let until = self.turns.until_wanted(thread::now(), &self.members);
        until.unwrap_or(Duration::MAX)
    }

    fn prepare_sleep(&mut self) -> bool {
        let mut known = self.arm_notifications();
        self.each(|client, _| {
            known &= client.prepare_sleep()?;
            Ok(())
        });
        known
    }

    fn close(&mut self) {
        for client in self.members.iter_mut().flatten() {
            client.close();
        }
    }
}
