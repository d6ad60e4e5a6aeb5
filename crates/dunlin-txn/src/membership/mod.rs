//! Who is of a database: machines with their roles, epoch by epoch, and the store that decides it.
//!
//! A [`Configuration`] is the value of one register that a [`Membership`] keeps, and each follows another by a
//! compare-and-set. A machine of a configuration serves while it has a lease; who has none any more may be left out of
//! the next configuration, which [`plan::next`] makes. `docs/transactions.md` says why each step is safe.

#[cfg(feature = "etcd")]
pub mod etcd;
pub mod file;
pub mod memory;
pub mod peer;
pub mod plan;

use std::fmt;
use std::time::Duration;

use crate::placement::{Placement, PlacementError};
use crate::types::{MachineId, TransactionId, Update, Version};
use crate::wire::{Reader, WireError};

/// Versions that keys which share a header can be given within an epoch, as a power of two.
const CHANGES_BITS: u32 = 28;

/// The number of a configuration. The membership that never changes is of epoch 0; others begin with 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Of machines that nobody replaces.
    pub const FIXED: Epoch = Epoch(0);
    /// The first of machines that replace each other.
    pub const FIRST: Epoch = Epoch(1);

    /// The one after it.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }

    /// The version from which on those of headers that keys share are of this epoch: above all that machines of earlier
    /// ones gave.
    pub(crate) fn first_version(self) -> Version {
        Version((self.0 << CHANGES_BITS).min(Version::MAX.0 / 2))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}", self.0)
    }
}

/// A transaction that was decided, with all of its changes.
pub type Record = (TransactionId, Vec<Update>);

/// What a machine is in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// It has no part.
    Out,
    /// It gets all changes, and copies what was there before: nobody reads there.
    Learner,
    /// It has all that it should have.
    Whole,
}

/// A machine in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Which life of the machine.
    pub incarnation: u64,
    /// Where it is.
    pub address: String,
    /// What it is.
    pub role: Role,
}

/// Who is of the database in one epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Configuration {
    /// The database: a random number.
    pub database: u64,
    /// The epoch.
    pub epoch: Epoch,
    /// The last epoch that served before: what this one begins with is its state, and what it left undone.
    pub base: Epoch,
    /// Whether recovery is over, and the epoch serves.
    pub serving: bool,
    /// Who sees to the recovery.
    pub manager: MachineId,
    /// Copies of each key that there should be.
    pub replicas: u16,
    /// The machines by number.
    pub members: Vec<Member>,
}

/// A machine that is alive, as it says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Registration {
    /// Its number.
    pub machine: MachineId,
    /// This life of it.
    pub incarnation: u64,
    /// Where it is.
    pub address: String,
    /// It has all that it should have: what was loaded before the first epoch, or has copied it since, or has read its
    /// log.
    pub whole: bool,
    /// The life of the machine that it goes on with, from the disk: all that this one promised to keep it has when it
    /// is whole, and until then it reads its log. That life is over, as who has its disk knows, so a membership may end
    /// its lease as soon as this one is whole.
    pub succeeds: Option<u64>,
}

impl Registration {
    /// Whether the life that this one goes on with is a member still, and so this one can be in its place.
    pub fn may_succeed(&self, of: &Configuration) -> bool {
        let member = of.member(self.machine);
        let before = member.filter(|member| member.role == Role::Whole);
        before.is_some_and(|before| self.succeeds == Some(before.incarnation))
    }
}

/// What a membership says at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Observed {
    /// The configuration with its revision, when there is one.
    pub configuration: Option<(u64, Configuration)>,
    /// Who has a lease.
    pub alive: Vec<Registration>,
}

impl Observed {
    /// Whether this life of a machine has a lease.
    pub fn is_alive(&self, machine: MachineId, incarnation: u64) -> bool {
        let is = |one: &Registration| one.machine == machine && one.incarnation == incarnation;
        self.alive.iter().any(is)
    }

    /// The life of a machine that goes on with this one, if there is one with a lease.
    pub fn successor(&self, machine: MachineId, incarnation: u64) -> Option<&Registration> {
        let succeeds = |one: &&Registration| {
            one.machine == machine && one.succeeds == Some(incarnation) && one.whole
        };
        self.alive.iter().find(succeeds)
    }

    /// Whether the next life of a machine, with a lease, reads the log of this one.
    pub fn is_returning(&self, machine: MachineId, incarnation: u64) -> bool {
        let returns = |one: &Registration| {
            one.machine == machine && one.succeeds == Some(incarnation) && !one.whole
        };
        self.alive.iter().any(returns)
    }
}

/// Why a membership did not answer.
#[derive(Debug, thiserror::Error)]
#[error("membership: {why}")]
pub struct MembershipError {
    /// What happened.
    pub why: String,
    /// The lease is gone for good: this life of the machine cannot go on.
    pub is_final: bool,
}

/// Keeps the configuration and the leases. It decides alone, so it must be linearizable: a store that a majority of
/// machines agrees on, or one place.
pub trait Membership: Send + fmt::Debug {
    /// Gives the machine a lease of this length from now on, and *then* says what is so. A lease that has ended is not
    /// given anew to the same incarnation by those that cannot tell who has seen it end.
    ///
    /// # Errors
    /// When it does not answer, or the machine's lease is gone for good.
    fn beat(
        &mut self,
        registration: &Registration,
        lease: Duration,
    ) -> Result<Observed, MembershipError>;

    /// What is so, without a lease.
    ///
    /// # Errors
    /// When it does not answer.
    fn look(&mut self) -> Result<Observed, MembershipError>;

    /// Puts a configuration in the place of the one of this revision (0: there was none), if it is still that one and
    /// none of these lives of machines has a lease; both are judged at the same moment. Whether it did.
    ///
    /// # Errors
    /// When it does not answer: then it may have been done.
    fn replace(
        &mut self,
        revision: u64,
        next: &Configuration,
        absent: &[(MachineId, u64)],
    ) -> Result<bool, MembershipError>;
}

impl Configuration {
    /// The member of this number.
    pub fn member(&self, machine: MachineId) -> Option<&Member> {
        self.members.get(usize::from(machine.0))
    }

    /// Members that have a part, with their roles.
    pub fn present(&self) -> impl Iterator<Item = (MachineId, &Member)> {
        let numbered = self.members.iter().enumerate();
        numbered
            .filter(|(_, member)| member.role != Role::Out)
            .map(|(number, member)| (MachineId(number as u16), member))
    }

    /// Where keys are: each shard at the machines after its number, those that are whole first.
    ///
    /// # Errors
    /// When a shard has no whole copy left.
    pub fn placement(&self) -> Result<Placement, PlacementError> {
        let count = self.members.len() as u16;
        let shard = |first: u16| {
            let replicas = (0..self.replicas.min(count)).map(|n| MachineId((first + n) % count));
            let of = |role: Role| {
                let is = move |id: &MachineId| self.members[usize::from(id.0)].role == role;
                replicas.clone().filter(is).collect::<Vec<_>>()
            };
            match of(Role::Whole) {
                whole if whole.is_empty() => Vec::new(),
                mut whole => {
                    whole.extend(of(Role::Learner));
                    whole
                }
            }
        };
        Placement::new((0..count).map(shard).collect())
    }

    /// Where a coordinator of this number logs, if its protocol has logs of its own: at two machines that are whole, as
    /// long as there are two (FaSST).
    pub fn log_replicas(&self, coordinator: u64) -> Vec<MachineId> {
        let whole = self.present().filter(|(_, m)| m.role == Role::Whole);
        let whole: Vec<MachineId> = whole.map(|(machine, _)| machine).collect();
        let count = whole.len() as u64;
        let nth = |n: u64| whole[((coordinator + n) % count) as usize];
        (0..count.min(2)).map(nth).collect()
    }

    /// What requests of coordinators carry: another epoch or another database has another.
    pub fn fence(&self) -> u64 {
        self.database.wrapping_add(self.epoch.0)
    }

    /// As bytes, for who keeps it and for clients.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [self.database, self.epoch.0, self.base.0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.push(u8::from(self.serving));
        out.extend_from_slice(&self.manager.0.to_le_bytes());
        out.extend_from_slice(&self.replicas.to_le_bytes());
        out.extend((self.members.len() as u32).to_le_bytes());
        for member in &self.members {
            out.extend_from_slice(&member.incarnation.to_le_bytes());
            put_text(&mut out, &member.address);
            out.push(match member.role {
                Role::Out => 0,
                Role::Learner => 1,
                Role::Whole => 2,
            });
        }
        out
    }

    /// Reads a configuration, which must be all of the bytes.
    ///
    /// # Errors
    /// When they are none.
    pub fn decode(bytes: &[u8]) -> Result<Configuration, WireError> {
        let mut from = Reader::new(bytes);
        let (database, epoch, base) = (from.u64()?, from.u64()?, from.u64()?);
        let serving = from.flag()?;
        let (manager, replicas) = (MachineId(from.u16()?), from.u16()?);
        let members = from.list(8 + 2 + 1, |from| {
            let (incarnation, address) = (from.u64()?, text(from)?);
            let role = match from.u8()? {
                0 => Role::Out,
                1 => Role::Learner,
                2 => Role::Whole,
                other => return Err(WireError::Kind(other)),
            };
            Ok(Member {
                incarnation,
                address,
                role,
            })
        })?;
        from.end()?;
        Ok(Configuration {
            database,
            epoch: Epoch(epoch),
            base: Epoch(base),
            serving,
            manager,
            replicas,
            members,
        })
    }
}

/// An address, which is cut where it is longer than a length can say.
fn put_text(out: &mut Vec<u8>, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
    out.extend((bytes.len() as u16).to_le_bytes());
    out.extend(bytes);
}

fn text(from: &mut Reader<'_>) -> Result<String, WireError> {
    let length = from.u16()?;
    Ok(String::from_utf8_lossy(from.bytes(usize::from(length))?).into_owned())
}
