//! A machine of a membership that changes: its participants, its lease, and the thread that renews the lease and
//! executes the orders of [`Agent`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use dunlin_rpc::{ClientBuilder, RegisteredRegion};
use dunlin_verbs::thread;

use super::asking::Asking;
use super::disk::Disk;
use super::notes::{Note, Notes};
use super::tables::TableStore;
use crate::effort::{of_copying, Copying};
use crate::host::Host;
use crate::log::Entry;
use crate::membership::peer::{PeerAnswer, PeerRequest};
use crate::membership::{Configuration, Epoch, Membership, Record};
use crate::participant::{keeps, NotInstalled, OtherEpoch, Participant};
use crate::recovery::{page, Agent, Condition, Local, Order, CHUNK_BYTES, PAGE_BYTES};
use crate::store::{LockError, Store};
use crate::types::{Key, MachineId, TransactionId, Update};

/// Fractions of a lease: how often it is renewed, and how often the agent is polled.
pub(super) const BEATS: u32 = 5;
const LOOKS: u32 = 40;
/// Average number of bytes of a chunk that are stored together.
const PIECE_BYTES: usize = CHUNK_BYTES / 32;

pub(super) type TableParticipant = Participant<TableStore<RegisteredRegion>>;
pub(super) type Participants = Vec<Mutex<TableParticipant>>;

/// A member, as shared by the handlers and the thread.
#[derive(Debug)]
pub(super) struct Member {
    me: MachineId,
    participants: Arc<Participants>,
    agent: Mutex<Agent>,
    start: Instant,
    /// In nanoseconds since `start`.
    lease_until: AtomicU64,
    /// The number of the database, once it has begun.
    database: AtomicU64,
    ended: AtomicBool,
    /// It has no space for what others have committed, and waits until they have gone on without it.
    is_full: AtomicBool,
    pub(super) notes: Arc<Notes>,
    /// Its log, if that is on a disk.
    disk: Option<Arc<Disk>>,
    pub(super) host: Arc<dyn Host>,
}

impl Member {
    pub(super) fn new(
        agent: Agent,
        (participants, disk): (Arc<Participants>, Option<Arc<Disk>>),
        host: Arc<dyn Host>,
    ) -> Arc<Member> {
        Arc::new(Member {
            me: agent.registration().machine,
            participants,
            agent: Mutex::new(agent),
            start: thread::now(),
            lease_until: AtomicU64::new(0),
            database: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            notes: Arc::default(),
            disk,
            host,
        })
    }

    pub(super) fn participants(&self) -> &Arc<Participants> {
        &self.participants
    }

    /// Time since it started.
    fn elapsed(&self) -> Duration {
        thread::now().saturating_duration_since(self.start)
    }

    fn agent(&self) -> MutexGuard<'_, Agent> {
        thread::lock(&self.agent)
    }

    /// Whether it may answer coordinators now.
    pub(super) fn has_lease(&self) -> bool {
        self.elapsed() < Duration::from_nanos(self.lease_until.load(Ordering::Acquire))
    }

    /// The epoch that a request refers to.
    pub(super) fn epoch_of(&self, fence: u64) -> Epoch {
        Epoch(fence.wrapping_sub(self.database.load(Ordering::Acquire)))
    }

    /// The configuration that this machine serves, if it serves one.
    pub(super) fn serving(&self) -> Option<Configuration> {
        let known = self.agent().configuration().cloned()?;
        let serves = Own(self).standing() == (known.epoch, true);
        (serves && known.serving && self.has_lease()).then_some(known)
    }

    /// Whether this life of the machine is over.
    pub(super) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Answers a request of another machine, if it is for this life of the machine.
    pub(super) fn answer(&self, incarnation: u64, request: &PeerRequest) -> PeerAnswer {
        let mut agent = self.agent();
        let is_over = self.is_ended() || self.is_full.load(Ordering::Acquire);
        if agent.registration().incarnation != incarnation || is_over {
            return PeerAnswer::No;
        }
        let known = agent.configuration().map_or(Epoch::FIXED, |of| of.epoch);
        let answer = agent.answer(&mut Own(self), request);
        if known < request.epoch() {
            self.notes.push(Note::Changed);
        }
        answer
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.lease_until.store(0, Ordering::Release);
        self.notes.push(Note::Changed);
    }

    /// Renews the lease and does what is to be done, until the server ends or the others have gone on without the
    /// machine.
    pub(super) fn run(
        self: &Arc<Self>,
        mut membership: Box<dyn Membership>,
        client: &ClientBuilder,
        lease: Duration,
    ) {
        let asking = Asking::default();
        let mut beat_at = Duration::ZERO;
        while !self.is_ended() {
            if self.is_full.load(Ordering::Acquire) {
                return self.leave(membership.as_mut(), lease);
            }
            let now = self.elapsed();
            if now >= beat_at {
                beat_at = now + lease / BEATS;
                if !self.beat(membership.as_mut(), lease) {
                    return self.end();
                }
            }
            let orders = self.agent().poll(self.elapsed(), &mut Own(self));
            for order in orders {
                match order {
                    Order::Ask {
                        machine,
                        incarnation,
                        address,
                        request,
                    } => asking.ask(self, client, (machine, incarnation, address), request),
                    Order::Replace(proposal) => {
                        let (next, absent) = (&proposal.next, &proposal.absent);
                        match membership.replace(proposal.revision, next, absent) {
                            Ok(true) => {
                                tracing::info!(machine = %self.me, epoch = %next.epoch, serving = next.serving, "membership");
                                beat_at = Duration::ZERO;
                                if next.serving {
                                    self.tell(next, &asking, client);
                                }
                            }
                            Ok(false) => beat_at = Duration::ZERO,
                            Err(error) => tracing::warn!(machine = %self.me, %error, "membership"),
                        }
                    }
                }
            }
            if beat_at == Duration::ZERO {
                continue;
            }
            match self.notes.next(lease / LOOKS) {
                Some(Note::Answer(machine, request, answer)) => {
                    let mut agent = self.agent();
                    agent.answered(machine, &request, answer, &mut Own(self));
                }
                Some(Note::Changed) => beat_at = Duration::ZERO,
                None => {}
            }
        }
    }

    /// Lets the lease expire, and ends this life once the others have gone on: a new life that continued from the same
    /// log earlier would be admitted in its place, and would have no space either.
    fn leave(&self, membership: &mut dyn Membership, lease: Duration) {
        let me = self.agent().registration().incarnation;
        while !self.is_ended() {
            let known = membership.look().ok().and_then(|known| known.configuration);
            let is_out = |of: &Configuration| of.present().all(|(_, one)| one.incarnation != me);
            if known.is_some_and(|(_, of)| is_out(&of)) {
                return self.end();
            }
            self.notes.next(lease / BEATS);
        }
    }

    /// Returns whether the machine may continue.
    fn beat(&self, membership: &mut dyn Membership, lease: Duration) -> bool {
        let me = self.agent().registration().clone();
        let asked = self.elapsed();
        let observed = match membership.beat(&me, lease) {
            Ok(observed) => observed,
            Err(error) => {
                tracing::warn!(machine = %self.me, %error, "cannot get or renew the lease");
                // The others also detect that a lease has ended for good: they go on without this machine.
                return !error.is_final;
            }
        };
        let mut agent = self.agent();
        let condition = agent.observed(asked, observed);
        let until = agent.lease_until().as_nanos();
        let until = u64::try_from(until).unwrap_or(u64::MAX);
        self.lease_until.store(until, Ordering::Release);
        if let Some(of) = agent.configuration() {
            self.database.store(of.database, Ordering::Release);
        }
        condition == Condition::Well
    }

    /// Notifies the others that the epoch serves, which they would otherwise find out a little later.
    fn tell(self: &Arc<Self>, of: &Configuration, asking: &Asking, client: &ClientBuilder) {
        let epoch = of.epoch;
        for (machine, member) in of.present().filter(|(machine, _)| *machine != self.me) {
            let whom = (machine, member.incarnation, member.address.clone());
            asking.ask(self, client, whom, PeerRequest::Serve { epoch });
        }
    }
}

/// Locks all participants at once: nothing changes meanwhile.
pub(super) fn lock_all(participants: &Participants) -> Vec<Guard<'_>> {
    participants.iter().map(thread::lock).collect()
}

/// Returns a chunk of the wanted keys from this position on, and the next position. `found` is called with the number
/// of items in each piece, before the participants are unlocked.
pub(super) fn chunk_of(
    participants: &Participants,
    cursor: u64,
    wanted: &dyn Fn(&Key) -> bool,
    found: &dyn Fn(usize),
) -> (Vec<Update>, Option<u64>) {
    in_pieces(participants, cursor, |all, cursor, bytes| {
        let Some(one) = all.first() else {
            return (Vec::new(), None);
        };
        let (items, next) = one.store().chunk(cursor, bytes, wanted);
        found(items.len());
        (items, next)
    })
}

/// Collects items of about [`CHUNK_BYTES`] from this position on, and the next position. Nothing changes while a piece
/// is collected; in between the tables are unlocked for requests, which a whole chunk would delay for as long as many
/// of them take.
pub(super) fn in_pieces<'p, T>(
    participants: &'p Participants,
    cursor: u64,
    piece: impl Fn(Vec<Guard<'p>>, u64, usize) -> (Vec<T>, Option<u64>),
) -> (Vec<T>, Option<u64>) {
    let (mut items, mut next) = (Vec::new(), Some(cursor));
    for _ in 0..CHUNK_BYTES / PIECE_BYTES {
        let Some(cursor) = next else { break };
        let (mut more, behind) = piece(lock_all(participants), cursor, PIECE_BYTES);
        items.append(&mut more);
        next = behind;
    }
    (items, next)
}

/// Stores the items of a chunk, except those of which there is a later version, in as many pieces as they were
/// collected in: changes that the machine gets as a backup are handled in between. `stored` is called for each piece
/// that is stored, before the participants are unlocked.
pub(super) fn adopt_into(
    participants: &Participants,
    items: &[Update],
    stored: &dyn Fn(&[Update]),
) -> Result<(), LockError> {
    let most = items.len().div_ceil(CHUNK_BYTES / PIECE_BYTES).max(1);
    for piece in items.chunks(most) {
        let mut all = lock_all(participants);
        if let Some(one) = all.first_mut() {
            one.adopt(piece)?;
        }
        stored(piece);
    }
    Ok(())
}

pub(super) type Guard<'a> = MutexGuard<'a, TableParticipant>;

/// The machine's participants as a single one.
struct Own<'a>(&'a Member);

impl Own<'_> {
    fn append(&self, entry: impl FnOnce() -> Entry) {
        if let Some(disk) = &self.0.disk {
            disk.append(&entry());
        }
    }

    /// Charges a simulated core.
    fn charge(&self, part: Copying) {
        if let Some(charge) = self.0.host.charge() {
            charge(of_copying(part));
        }
    }

    fn each(&self) -> impl Iterator<Item = Guard<'_>> {
        let participants: &Participants = &self.0.participants;
        let each = participants.iter();
        each.map(thread::lock)
    }
}

impl Local for Own<'_> {
    fn seal(
        &mut self,
        epoch: Epoch,
        base: Epoch,
        cursor: u64,
    ) -> Result<(Vec<Record>, Option<u64>), OtherEpoch> {
        let mut all = lock_all(&self.0.participants);
        for participant in &mut all {
            participant.seal(epoch, base)?;
        }
        if cursor == 0 {
            self.append(|| Entry::Seal { epoch, base });
        }
        let decided = all.iter().flat_map(|one| one.decided());
        Ok(page(decided.collect(), cursor, PAGE_BYTES))
    }

    fn install(
        &mut self,
        epoch: Epoch,
        records: &[Record],
        of: &Configuration,
    ) -> Result<(), NotInstalled> {
        let keeps = keeps(of, self.0.me).ok_or(OtherEpoch)?;
        let shares = self.0.participants.len() as u64;
        let mut all = lock_all(&self.0.participants);
        for (share, participant) in (0..).zip(&mut all) {
            let mine = |(id, _): &&Record| id.coordinator % shares == share;
            let mine: Vec<Record> = records.iter().filter(mine).cloned().collect();
            let installed = participant.install(epoch, &mine, &keeps);
            if let Err(error @ NotInstalled::NoRoom(_)) = &installed {
                tracing::error!(machine = %self.0.me, %error, "the machine stops serving: make the tables larger");
                self.0.is_full.store(true, Ordering::Release);
                self.0.notes.push(Note::Changed);
            }
            installed?;
        }
        self.append(|| Entry::Install {
            of: of.clone(),
            records: records.to_vec(),
        });
        if let Some(disk) = &self.0.disk {
            // The agent is notified when that is on the disk.
            let notes = Arc::clone(&self.0.notes);
            disk.afterwards(move || notes.push(Note::Changed));
        }
        Ok(())
    }

    fn serve(&mut self, of: &Configuration) -> Result<(), OtherEpoch> {
        let mut all = lock_all(&self.0.participants);
        if all
            .iter()
            .all(|one| (one.epoch(), one.is_serving()) == (of.epoch, true))
        {
            return Ok(());
        }
        if let Some(disk) = &self.0.disk {
            disk.serves(of.database);
        }
        all.iter_mut().try_for_each(|one| one.serve(of.epoch))?;
        let (epoch, database) = (of.epoch, of.database);
        self.append(|| Entry::Serve { epoch, database });
        Ok(())
    }

    fn standing(&self) -> (Epoch, bool) {
        // The minimum of all, since each is notified separately.
        let standing = self.each().map(|one| (one.epoch(), one.is_serving()));
        standing.min().unwrap_or_default()
    }

    fn holders(&self) -> Vec<(TransactionId, u16)> {
        self.each().flat_map(|one| one.holders()).collect()
    }

    fn is_crowded(&self) -> bool {
        self.each().any(|one| one.is_crowded())
    }

    fn chunk(
        &self,
        cursor: u64,
        machine: MachineId,
        of: &Configuration,
    ) -> (Vec<Update>, Option<u64>) {
        let Ok(placement) = of.placement() else {
            return (Vec::new(), None);
        };
        let me = self.0.me;
        let wanted =
            |key: &Key| placement.primary(key) == me && placement.backups(key).contains(&machine);
        let found = |items| self.charge(Copying::Found(items));
        let (items, next) = chunk_of(&self.0.participants, cursor, &wanted, &found);
        self.charge(Copying::Encoded(items.len()));
        (items, next)
    }

    fn adopt(&mut self, items: &[Update]) -> bool {
        self.charge(Copying::Decoded(items.len()));
        let stored = |piece: &[Update]| {
            self.charge(Copying::Stored(piece.len()));
            // Logged before any later change of one of the keys.
            self.append(|| Entry::Adopt(piece.to_vec()));
        };
        adopt_into(&self.0.participants, items, &stored).is_ok()
    }

    fn is_durable(&self) -> bool {
        self.0.disk.as_ref().is_none_or(|disk| disk.is_durable())
    }

    fn learned(&mut self) {
        if let Some(mut one) = self.each().next() {
            one.store_mut().learn(false);
        }
    }
}
