//! The engine of a shared lane: what its leader does. It never waits, except, if the server asks for it, for a moment
//! for threads that were answered together with the leader.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use dunlin_verbs::{thread, CompletionChannel, Device, Work};

use super::calls::port_of;
use super::combining::{Members, Node, Outcome, Run};
use super::port::{CALL, OPERATION};
use super::ports::{Mine, Ports};
use super::status::Status;
use crate::admission::credits::{CreditBalance, Renewal};
use crate::admission::{Standing, REPORTS_SHIFT, STANDING_SHIFT};
use crate::call::core::{ClientCore, Outstanding};
use crate::call::lane::{Answer, CallId};
use crate::channel::batch::MOST_MESSAGES;
use crate::channel::ring::RingChannel;
use crate::channel::short_copy::copy;
use crate::channel::{Channel, ChannelError};
use crate::effort;
use crate::error::CallError;

/// The longest that a leader waits for threads that were answered together: about the time that a thread takes from its
/// answer to its next call.
const REJOIN_MOST: Duration = Duration::from_nanos(100);

/// The calls of all ports that share a lane, the shared state of the lane, and the taker of the answers.
struct Shared<'a, 'm, D> {
    ports: &'a Ports,
    status: &'a Status,
    mine: &'a mut Option<Mine<'m>>,
    /// Number of threads that were answered, and the last of them: answers to one thread's calls are adjacent in a
    /// message.
    answered: usize,
    last: Option<usize>,
    device: PhantomData<D>,
}

impl<'a, 'm, D: Device> Shared<'a, 'm, D> {
    #[inline]
    fn new(ports: &'a Ports, status: &'a Status, mine: &'a mut Option<Mine<'m>>) -> Self {
        Self {
            ports,
            status,
            mine,
            answered: 0,
            last: None,
            device: PhantomData,
        }
    }

    /// Ends a call, or an operation, with its short response.
    #[inline]
    fn end(&mut self, call: CallId, what: u64, response: &[u8]) -> Result<(), ChannelError> {
        D::charge(effort::ANSWERED);
        let port = port_of(call);
        self.answered += usize::from(self.last.replace(port) != Some(port));
        if self.ports.answer(call, what, response, self.mine)? {
            D::charge(Work::SharedLine);
        }
        Ok(())
    }
}

impl<D: Device> Outstanding for Shared<'_, '_, D> {
    #[inline]
    fn answer(&mut self, call: CallId, response: &[u8]) -> Result<(), ChannelError> {
        self.end(call, CALL, response)
    }

    fn operated(&mut self, call: CallId, result: &[u8]) -> Result<(), ChannelError> {
        self.end(call, OPERATION, result)
    }

    fn expect_answer(&mut self, call: CallId) -> Result<(), ChannelError> {
        self.ports.expect_answer(call)
    }

    fn complete(
        &mut self,
        call: CallId,
        result: Result<Answer<'_>, CallError>,
    ) -> Result<(), ChannelError> {
        self.ports.complete(call, result, self.mine)
    }

    fn begin_fetch(&mut self, call: CallId) -> Result<(), ChannelError> {
        self.ports.begin_fetch(call)
    }

    fn leave(&mut self) {
        self.status.leave();
    }
}

/// One lane's core, and its credits.
pub(crate) struct Engine<D: Device> {
    core: ClientCore<RingChannel<D>>,
    ports: Arc<Ports>,
    status: Arc<Status>,
    /// `None` if the server does not count credits.
    balance: Option<CreditBalance>,
    word: u64,
    /// What the server had last told when a thread found no room or no credits.
    refused_at: (u64, u64),
    most_members: usize,
    /// The thread whose core holds the cache line of the queue's tail: the last leader, if no thread followed it. Used
    /// only to account for the cost.
    led_by: usize,
    /// Number of threads that have been answered since the last message was sent.
    answered: usize,
}

impl<D: Device> Engine<D> {
    pub(crate) fn new(
        channel: RingChannel<D>,
        credits: Option<u32>,
        most_members: usize,
        (ports, status): (&Arc<Ports>, &Arc<Status>),
    ) -> Self {
        Self {
            core: ClientCore::new(channel),
            ports: Arc::clone(ports),
            status: Arc::clone(status),
            balance: credits.map(CreditBalance::new),
            word: 0,
            refused_at: (0, 0),
            most_members,
            led_by: 0,
            answered: 0,
        }
    }

    /// Reads what the server has granted.
    #[inline]
    fn look_at_grant(&mut self) {
        let word = self.core.channel.granted();
        if word != self.word {
            self.word = word;
            if let Some(balance) = &mut self.balance {
                balance.granted(word as u32);
                balance.reports_taken((word >> REPORTS_SHIFT) as u8);
                let standing = Standing::from_bits_truncate((word >> STANDING_SHIFT) as u8);
                self.status.set_standing(standing);
            }
        }
    }

    /// Number of requests that may be sent now.
    #[inline]
    fn credits(&mut self) -> u32 {
        let Some(balance) = &self.balance else {
            return u32::MAX;
        };
        // News that no thread waits for is found by the checks.
        if balance.has_asked() || !self.status.is_active() {
            self.look_at_grant();
        }
        match &self.balance {
            Some(balance) if self.status.spends() => balance.left(),
            _ => 0,
        }
    }

    /// Writes a message with one run, whose thread leads and is alone.
    #[inline]
    pub(crate) fn send_alone(&mut self, run: Run<'_>) -> Result<Outcome, ChannelError> {
        let bytes = run.bytes.len();
        if run.requests > 0 && run.requests > self.credits()
            || self.core.channel.run_room(bytes)? < bytes
            || !run.operations.is_empty()
                && self.core.channel.one_sided_room()? < run.operations.len()
        {
            self.refused_at = self.core.channel.news();
            return Ok(Outcome::Full);
        }
        self.answered = 0;
        if run.messages > 0 {
            D::charge(Work::Copy(bytes));
            copy(self.core.channel.run_space(bytes), run.bytes);
            self.write(bytes, run.messages, run.requests, 1)?;
        }
        if !run.operations.is_empty() {
            self.core.channel.post_one_sided(run.operations.iter())?;
            self.count_operations(run.operations.len())?;
        }
        Ok(Outcome::Sent)
    }

    /// Counts one-sided operations that were posted together.
    fn count_operations(&mut self, count: usize) -> Result<(), ChannelError> {
        self.status.figures.operated(count as u64);
        let balance = self.balance.as_ref();
        if balance.is_some_and(CreditBalance::has_reported) {
            self.look_at_grant();
        }
        let report = self.balance.as_mut().and_then(|p| p.operate(count as u32));
        report.map_or(Ok(()), |degree| self.core.channel.report(degree))
    }

    /// Writes the message that is in the batch, and accounts for its requests.
    #[inline]
    fn write(
        &mut self,
        bytes: usize,
        messages: u32,
        requests: u32,
        threads: usize,
    ) -> Result<(), ChannelError> {
        self.core.channel.commit_run(bytes, messages);
        if requests > 0 {
            let figures = &self.status.figures;
            figures.sent(requests, threads as u32);
            if let Some(balance) = &mut self.balance {
                balance.spend(requests, threads as u32);
                figures.credits(balance.left());
                if let Some(said) = balance.ask() {
                    let renewal = Renewal::wanted(said, self.status.threads());
                    self.core.channel.ask_for_credits(renewal.encode());
                }
            }
        }
        self.core.channel.flush()
    }

    /// Called when this node's thread leads. If another thread has been at the queue's tail since, the cache line comes
    /// from its core; threads that queue meanwhile join the message.
    #[inline]
    pub(crate) fn begin_lead(&mut self, leader: &Node) {
        let leader = std::ptr::from_ref(leader).addr();
        if self.led_by != leader {
            self.led_by = leader;
            D::charge(Work::SharedLine);
        }
    }

    /// Waits a moment for threads that were answered and have not come yet, if the server asks for it: threads that
    /// were answered together then send together.
    #[inline]
    fn await_answered(&mut self, members: &Members<'_>) {
        let answered = std::mem::take(&mut self.answered);
        if self.status.standing().contains(Standing::REJOINED) {
            Self::await_others(
                members,
                answered.saturating_sub(usize::from(members.leader_sends())),
            );
        }
    }

    #[cold]
    fn await_others(members: &Members<'_>, others: usize) {
        if members.have_come(others) {
            return;
        }
        let since = thread::now();
        while !members.have_come(others) && thread::now().duration_since(since) < REJOIN_MOST {
            thread::relax();
        }
    }

    /// Writes one message for the leader and its followers.
    #[inline]
    pub(crate) fn send(&mut self, members: &mut Members<'_>) -> Result<(), ChannelError> {
        self.await_answered(members);
        let left = self.credits();
        let (mut bytes, mut messages, mut requests, mut operations) = (0, 0, 0, 0);
        let mut failed = None;
        let channel = &mut self.core.channel;
        let count = members.gather(self.most_members, |b, m, r, o| {
            let room = match channel.run_room(bytes + b) {
                Ok(room) => room,
                Err(error) => {
                    failed = Some(error);
                    return false;
                }
            };
            let room_for_operations = match o {
                0 => 0,
                _ => match channel.one_sided_room() {
                    Ok(room) => room,
                    Err(error) => {
                        failed = Some(error);
                        return false;
                    }
                },
            };
            let fits = bytes + b <= room
                && (o == 0 || operations + o <= room_for_operations)
                && (r == 0 || requests + r <= left)
                && messages + m <= MOST_MESSAGES;
            if fits {
                bytes += b;
                messages += m;
                requests += r;
                operations += o;
            }
            fits
        });
        if let Some(error) = failed {
            return Err(error);
        }
        if members.is_own_full() {
            self.refused_at = self.core.channel.news();
        }
        if count == 0 {
            return Ok(());
        }
        if count > 1 {
            // The tail is at the core of the last of them.
            self.led_by = 0;
        }
        // Each follower's node is a cache line of its core.
        for _ in 1..count {
            D::charge(Work::SharedLine);
        }
        if messages > 0 {
            D::charge(effort::GATHERED);
            D::charge(Work::Copy(bytes));
            members.fill(self.core.channel.run_space(bytes));
            self.write(bytes, messages, requests, count)?;
        }
        if operations > 0 {
            self.core.channel.post_one_sided(members.operations())?;
            self.count_operations(operations)?;
        }
        members.settle(Outcome::Sent);
        Ok(())
    }

    /// Takes what has arrived and hands it out.
    #[inline]
    pub(crate) fn take(&mut self, mine: &mut Option<Mine<'_>>) -> Result<usize, ChannelError> {
        let mut shared = Shared::<D>::new(&self.ports, &self.status, mine);
        let taken = match self.core.is_idle() {
            true => {
                D::charge(Work::Poll);
                0
            }
            false => self.core.take(&mut shared)?,
        };
        self.answered += shared.answered;
        if taken > 0 {
            D::charge(effort::LOOKED);
        }
        if self.status.is_wanted() {
            self.look_for_news();
        }
        Ok(taken)
    }

    /// Checks for the room or credits that sleeping threads want; the dispatcher wakes them.
    #[cold]
    fn look_for_news(&mut self) {
        if self.core.channel.news() != self.refused_at {
            self.status.announce();
            self.core.channel.wake().wake();
        }
    }

    /// Checks for completions, failures and grants, which do not show in messages.
    pub(crate) fn check(&mut self, mine: &mut Option<Mine<'_>>) -> Result<(), ChannelError> {
        self.look_at_grant();
        if self.status.is_wanted() {
            self.look_for_news();
        }
        let mut shared = Shared::<D>::new(&self.ports, &self.status, mine);
        self.core.progress(&mut shared).map(drop)
    }

    /// Takes what the server sent before it went; the lane is about to be given up.
    #[cold]
    pub(crate) fn take_last(&mut self, mine: &mut Option<Mine<'_>>) {
        let mut shared = Shared::<D>::new(&self.ports, &self.status, mine);
        self.core.take_last(&mut shared);
        if let Some(Mine::Dispatcher(held)) = mine {
            // A thread that sees that the lane is lost checks its mail once more, and not again.
            held.drain(..).for_each(|ended| self.ports.hand_out(ended));
        }
    }

    /// See [`crate::channel::carrier::Carrier::prepare_sleep`].
    pub(crate) fn prepare_sleep(&mut self) -> Result<bool, ChannelError> {
        self.core.channel.prepare_sleep()
    }

    pub(crate) fn close(&mut self) {
        self.core.channel.close();
        // Threads that sleep on the lane must notice.
        self.core.channel.wake().wake();
    }
}
