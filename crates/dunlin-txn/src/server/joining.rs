//! How a machine joins a database whose machines are replaced when they fail: its initial state, its agent, and the
//! agent's thread.

use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use dunlin_rpc::{ClientBuilder, Region, ServeError};
use dunlin_verbs::thread;

use super::disk::{self, Opened};
use super::load::load;
use super::member::{Member, Participants};
use super::returning::Life;
use super::{tables_of, Replicated, Service, StoreConfig, StoreServerError};
use crate::host::Host;
use crate::membership::{Membership, Registration};
use crate::placement::Placement;
use crate::recovery::{Agent, Begins, Timing};
use crate::types::{Key, MachineId, Value};

/// A machine whose server is about to start.
pub(super) struct Joining {
    host: Arc<dyn Host>,
    config: StoreConfig,
    membership: Box<dyn Membership>,
    lease: Duration,
    client: ClientBuilder,
    advertise: Option<String>,
    log: Option<Opened>,
    begins: Begins,
    pub(super) incarnation: u64,
    database: u64,
}

/// What its server provides.
pub(super) struct Given<'s> {
    pub(super) service: &'s OnceLock<Service>,
    pub(super) regions: &'s [Region],
    pub(super) placement: &'s Placement,
    /// The address at which its server listens.
    pub(super) address: String,
    pub(super) participants: usize,
}

/// The running agent of a machine. When it is dropped the agent ends, and the others go on without the machine once its
/// lease is over.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) member: Arc<Member>,
    /// Never contended; the mutex only makes the machine shareable between threads.
    thread: Mutex<Option<thread::Running>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.member.end();
        if let Some(thread) = thread::lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

impl Running {
    /// Ends it without waiting for it: on a simulated host that has stopped it would never end.
    pub(super) fn give_up(self) {
        self.member.end();
        drop(thread::lock(&self.thread).take());
    }
}

fn timing(lease: Duration) -> Timing {
    Timing {
        lease,
        margin: lease / 10,
        patience: lease,
        again: lease / 20,
    }
}

impl Joining {
    /// Reads the membership, and the log if there is one.
    pub(super) fn look(
        host: Arc<dyn Host>,
        config: &StoreConfig,
        mut replicated: Replicated,
    ) -> Result<Self, StoreServerError> {
        if config.one_sided_writes {
            return Err(StoreServerError::OneSided);
        }
        let random = || {
            let number = host.number();
            number.map_err(|error| StoreServerError::Random(error.to_string()))
        };
        let (incarnation, database) = (random()?, random()?);
        let observed = replicated.membership.look()?;
        let known = observed.configuration.as_ref().map(|(_, of)| of);
        let log = replicated.log.take();
        let log = log.map(|folder| Opened::new(folder, config, known, incarnation));
        let log = log.transpose()?;
        let begins = match &log {
            Some(log) => log.begins(),
            // Before there is a configuration no machine has anything that this one could copy.
            None if known.is_none() => Begins::First,
            None => Begins::Empty,
        };
        Ok(Self {
            host,
            config: config.clone(),
            membership: replicated.membership,
            lease: replicated.lease,
            client: replicated.client,
            advertise: replicated.advertise,
            log,
            begins,
            incarnation,
            database,
        })
    }

    /// Whether answers wait for a disk.
    pub(super) fn defers(&self) -> bool {
        self.log.is_some()
    }

    /// Fills the tables of the server that has started, with the initial contents of the database, with what is on the
    /// disk, or with nothing yet; and starts the thread.
    pub(super) fn join<I: Iterator<Item = (Key, Value)>>(
        self,
        given: Given<'_>,
        initial: impl FnOnce() -> I,
    ) -> Result<(Running, Option<disk::Running>), StoreServerError> {
        let Self {
            host,
            config,
            membership,
            lease,
            client,
            advertise,
            mut log,
            begins,
            incarnation,
            database,
        } = self;
        let machine = MachineId(config.machine);
        let registration = Registration {
            machine,
            incarnation,
            address: advertise.unwrap_or(given.address),
            whole: begins != Begins::Empty,
            succeeds: match begins {
                Begins::Continues(before) => before,
                Begins::First | Begins::Empty => None,
            },
        };
        let tables = || tables_of(&config.tables, given.regions, given.participants);
        let life = Life {
            begins,
            registration,
            membership,
            participants: tables()?,
        };
        let Life {
            begins,
            registration,
            membership,
            participants,
        } = life.read(log.as_mut(), &tables, (given.placement, lease))?;
        let participants: Participants = participants.into_iter().map(Mutex::new).collect();
        if begins == Begins::First {
            load(&participants, (machine, given.placement), initial(), None)?;
        }
        // The member to be ended when the disk fails, once it exists.
        let ends: Arc<OnceLock<Weak<Member>>> = Arc::default();
        let (participants, writer, disk) = match log {
            None => (Arc::new(participants), None, None),
            Some(log) => {
                let member = Arc::clone(&ends);
                let failed = move || {
                    let member = member.get().and_then(Weak::upgrade);
                    member.iter().for_each(|member| member.end());
                };
                let (running, disk, participants) = log.run(participants, failed)?;
                (participants, Some(running), Some(disk))
            }
        };
        let (machines, replicas) = (config.machines, config.replicas);
        let agent = Agent::new(registration, machines, replicas, timing(lease), database);
        let of = (Arc::clone(&participants), disk.clone());
        let member = Member::new(agent, of, Arc::clone(&host));
        let _ = ends.set(Arc::downgrade(&member));
        if disk.as_ref().is_some_and(|disk| disk.has_ended()) {
            member.end();
        }
        let _ = given.service.set(Service {
            participants,
            member: Some(Arc::clone(&member)),
            disk,
            charge: host.charge(),
        });
        let running = Arc::clone(&member);
        let client = client.connect_timeout(lease).deadline(lease);
        let run = move || running.run(membership, &client, lease);
        let thread = host.start("dunlin-member", Box::new(run));
        let thread = thread.map_err(|error| ServeError::Setting(error.to_string()))?;
        let agent = Running {
            member,
            thread: Mutex::new(Some(thread)),
        };
        Ok((agent, writer))
    }
}
