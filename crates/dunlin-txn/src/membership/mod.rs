//! The membership of a database: machines with their roles, epoch by epoch, and the store that decides on it.
//!
//! A [`Configuration`] is the value of one register, which a [`Membership`] stores; each replaces the previous one by a
//! compare-and-set. A machine of a configuration serves while it has a lease; a machine without one may be left out of
//! the next configuration, which [`plan::next`] computes. `docs/transactions.md` explains why each step is safe.

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

/// Number of versions, as a power of two, that keys which share a header can be given within an epoch.
const CHANGES_BITS: u32 = 28;

/// The number of a configuration. A membership that never changes has epoch 0; others begin with 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of a membership that never changes.
    pub const FIXED: Epoch = Epoch(0);
    /// The first epoch of a membership that changes.
    pub const FIRST: Epoch = Epoch(1);

    /// The next epoch.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }

    /// The first version of shared headers in this epoch: above all versions that machines assigned in earlier epochs.
    pub(crate) fn first_version(self) -> Version {
        Version((self.0 << CHANGES_BITS).min(Version::MAX.0 / 2))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}", self.0)
    }
}

/// A decided transaction, with all of its changes.
pub type Record = (TransactionId, Vec<Update>);

/// The role of a machine in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// It takes no part.
    Out,
    /// It receives all changes, and copies the existing data; it does not serve reads.
    Learner,
    /// It has all the data that it should have.
    Whole,
}

/// A machine in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The incarnation, that is the life, of the machine.
    pub incarnation: u64,
    /// Its address.
    pub address: String,
    /// Its role.
    pub role: Role,
}

/// The members of a database in one epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Configuration {
    /// The database's number, a random one.
    pub database: u64,
    /// The epoch.
    pub epoch: Epoch,
    /// The last earlier epoch that served: this one starts from its state, including its unfinished transactions.
    pub base: Epoch,
    /// Whether recovery is complete, and the epoch serves.
    pub serving: bool,
    /// The machine that manages the recovery.
    pub manager: MachineId,
    /// Number of copies that each key should have.
    pub replicas: u16,
    /// The machines by number.
    pub members: Vec<Member>,
}

/// A live machine, by its own account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Registration {
    /// Its number.
    pub machine: MachineId,
    /// The incarnation of this life.
    pub incarnation: u64,
    /// Its address.
    pub address: String,
    /// It has all the data that it should have: it has loaded the initial contents before the first epoch, has copied
    /// the data since, or has read its log.
    pub whole: bool,
    /// The life of the machine that it continues, from the disk: once it is whole it has everything that this life
    /// promised to keep; until then it reads its log. Since this one owns the disk that life is over, so a membership
    /// may end its lease as soon as this one is whole.
    pub succeeds: Option<u64>,
}

impl Registration {
    /// Whether the life that this one continues is still a member, so that this one can take its place.
    pub fn may_succeed(&self, of: &Configuration) -> bool {
        let member = of.member(self.machine);
        let before = member.filter(|member| member.role == Role::Whole);
        before.is_some_and(|before| self.succeeds == Some(before.incarnation))
    }
}

/// The state of a membership at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Observed {
    /// The configuration with its revision, if there is one.
    pub configuration: Option<(u64, Configuration)>,
    /// The machines that have a lease.
    pub alive: Vec<Registration>,
}

impl Observed {
    /// Whether this life of a machine has a lease.
    pub fn is_alive(&self, machine: MachineId, incarnation: u64) -> bool {
        let is = |one: &Registration| one.machine == machine && one.incarnation == incarnation;
        self.alive.iter().any(is)
    }

    /// The life of a machine that continues this one, if it has a lease.
    pub fn successor(&self, machine: MachineId, incarnation: u64) -> Option<&Registration> {
        let succeeds = |one: &&Registration| {
            one.machine == machine && one.succeeds == Some(incarnation) && one.whole
        };
        self.alive.iter().find(succeeds)
    }

    /// Whether the next life of the machine, with a lease, is reading this one's log.
    pub fn is_returning(&self, machine: MachineId, incarnation: u64) -> bool {
        let returns = |one: &Registration| {
            one.machine == machine && one.succeeds == Some(incarnation) && !one.whole
        };
        self.alive.iter().any(returns)
    }
}

/// The error of a request to a membership.
#[derive(Debug, thiserror::Error)]
#[error("membership: {why}")]
pub struct MembershipError {
    /// The reason.
    pub why: String,
    /// The lease has ended and cannot be renewed: this life of the machine cannot continue.
    pub is_final: bool,
}

/// Stores the configuration and the leases. It is the only authority, so it must be linearizable: a store replicated by
/// majority, or a single one.
pub trait Membership: Send + fmt::Debug {
    /// Grants the machine a lease of this length from now on, and *then* returns the state. Implementations that cannot
    /// know who has seen a lease end do not grant it again to the same incarnation.
    ///
    /// # Errors
    /// When it does not answer, or the machine's lease has ended for good.
    fn beat(
        &mut self,
        registration: &Registration,
        lease: Duration,
    ) -> Result<Observed, MembershipError>;

    /// Returns the state, without a lease.
    ///
    /// # Errors
    /// When it does not answer.
    fn look(&mut self) -> Result<Observed, MembershipError>;

    /// Replaces the configuration of this revision (0: there was none), provided that it is still the current one and
    /// none of these lives of machines has a lease; both are checked at the same moment. Returns whether it did.
    ///
    /// # Errors
    /// When it does not answer: it may still have been done.
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

    /// The members with a role, and their roles.
    pub fn present(&self) -> impl Iterator<Item = (MachineId, &Member)> {
        let numbered = self.members.iter().enumerate();
        numbered
            .filter(|(_, member)| member.role != Role::Out)
            .map(|(number, member)| (MachineId(number as u16), member))
    }

    /// The placement of keys: each shard on the machines that follow its number, whole ones first.
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

    /// The log replicas of the coordinator of this number, if its protocol uses them: two whole machines, provided that
    /// there are two (FaSST).
    pub fn log_replicas(&self, coordinator: u64) -> Vec<MachineId> {
        let whole = self.present().filter(|(_, m)| m.role == Role::Whole);
        let whole: Vec<MachineId> = whole.map(|(machine, _)| machine).collect();
        let count = whole.len() as u64;
        let nth = |n: u64| whole[((coordinator + n) % count) as usize];
        (0..count.min(2)).map(nth).collect()
    }

    /// The number that coordinators' requests carry: it differs between epochs and between databases.
    pub fn fence(&self) -> u64 {
        self.database.wrapping_add(self.epoch.0)
    }

    /// Encodes the configuration, for the membership and for clients.
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

    /// Decodes a configuration, which must be all of the bytes.
    ///
    /// # Errors
    /// When they are not a valid configuration.
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

/// Appends an address, truncated if it is longer than its length field allows.
fn put_text(out: &mut Vec<u8>, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
    out.extend((bytes.len() as u16).to_le_bytes());
    out.extend(bytes);
}

fn text(from: &mut Reader<'_>) -> Result<String, WireError> {
    let length = from.u16()?;
    Ok(String::from_utf8_lossy(from.bytes(usize::from(length))?).into_owned())
}
