//! A machine without a port, for simulated hosts.

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use dunlin_rpc::{LocalServer, ServeError, ServerBuilder};
use dunlin_verbs::Device;

use super::catalogue::Catalogue;
use super::joining::{Given, Joining, Running};
use super::load::load;
use super::member::{adopt_into, chunk_of, Participants};
use super::{tables_of, Prepared, Replicated, Service, StoreConfig, StoreServerError};
use crate::host::{HostOf, LocalAddresses};
use crate::placement::Placement;
use crate::store::LockError;
use crate::types::{Key, MachineId, Update, Value};

/// A machine that serves clients of this process, over a device that both were given. Its log is in memory.
#[derive(Debug)]
pub struct LocalStore {
    server: LocalServer,
    participants: Arc<Participants>,
    catalogue: Catalogue,
    placement: Placement,
    /// Present if the machine is replaced when it fails.
    agent: Option<Running>,
}

impl LocalStore {
    /// Serves over this device; the machine is not replaced when it fails. `participants`: number of participants among
    /// which the coordinators are divided by number: polling threads wait for each other when they need the same one.
    ///
    /// # Errors
    /// As for [`super::StoreServer::serve`].
    pub fn serve_on<D: Device>(
        device: D,
        builder: ServerBuilder,
        config: &StoreConfig,
        participants: usize,
    ) -> Result<Self, StoreServerError> {
        // Its memory is lost with the process, and the clients are in the same one.
        let incarnation = u64::from(config.machine);
        let prepared = Prepared::new(builder, config, incarnation, false)?;
        let server = prepared.builder.serve_on(device)?;
        let participants = tables_of(&config.tables, &prepared.regions, participants.max(1))?;
        let participants: Participants = participants.into_iter().map(Mutex::new).collect();
        let participants = Arc::new(participants);
        let _ = prepared.service.set(Service {
            participants: Arc::clone(&participants),
            member: None,
            disk: None,
            charge: Some(D::charge),
        });
        Ok(Self {
            server,
            participants,
            catalogue: prepared.catalogue,
            placement: prepared.placement,
            agent: None,
        })
    }

    /// Like [`super::StoreServer::serve_replicated`], over this device: others reach it at the address that it
    /// advertises, which is added to `addresses`. It has no log on a disk.
    ///
    /// # Errors
    /// As for [`super::StoreServer::serve_replicated`], and when it advertises no address.
    pub fn serve_replicated_on<D: Device + Clone, I: Iterator<Item = (Key, Value)>>(
        (device, addresses): (D, &LocalAddresses),
        builder: ServerBuilder,
        (config, participants): (&StoreConfig, usize),
        mut replicated: Replicated,
        initial: impl FnOnce() -> I,
    ) -> Result<Self, StoreServerError> {
        let address = replicated.advertise.clone().ok_or_else(|| {
            ServeError::Setting(
                "a machine of this process needs an address to advertise".to_owned(),
            )
        })?;
        replicated.log = None;
        let host = HostOf {
            device: device.clone(),
            addresses: addresses.clone(),
        };
        let joining = Joining::look(Arc::new(host), config, replicated)?;
        let prepared = Prepared::new(builder, config, joining.incarnation, joining.defers())?;
        let server = prepared.builder.serve_on(device)?;
        addresses.put(&address, server.acceptor());
        let given = Given {
            service: &prepared.service,
            regions: &prepared.regions,
            placement: &prepared.placement,
            address,
            participants: participants.max(1),
        };
        let (agent, _) = joining.join(given, initial)?;
        Ok(Self {
            server,
            participants: Arc::clone(agent.member.participants()),
            catalogue: prepared.catalogue,
            placement: prepared.placement,
            agent: Some(agent),
        })
    }

    /// Like [`super::StoreServer::is_fenced`].
    pub fn is_fenced(&self) -> bool {
        self.agent
            .as_ref()
            .is_some_and(|agent| agent.member.is_ended())
    }

    /// The underlying server.
    pub fn server(&self) -> &LocalServer {
        &self.server
    }

    /// Like [`super::StoreServer::load`].
    ///
    /// # Errors
    /// When a table does not accept a key or is full.
    pub fn load(&self, items: impl Iterator<Item = (Key, Value)>) -> Result<u64, StoreServerError> {
        let place = (MachineId(self.catalogue.machine), &self.placement);
        load(&self.participants, place, items, None)
    }

    /// Returns what a new machine copies first: items whose primary is this machine, about 256 KiB from this position
    /// on, and the next position. They are collected in pieces; `found` is called with the number of items in each,
    /// while the tables are still locked, so that a simulated core can be charged.
    pub fn chunk(&self, cursor: u64, found: &dyn Fn(usize)) -> (Vec<Update>, Option<u64>) {
        let me = MachineId(self.catalogue.machine);
        let wanted = |key: &Key| self.placement.primary(key) == me;
        chunk_of(&self.participants, cursor, &wanted, found)
    }

    /// Stores what another machine has copied, in pieces, except items of which a later version exists here. `stored`
    /// is called once, with the last piece, while the tables are still locked.
    ///
    /// # Errors
    /// When a table does not accept a key or is full.
    pub fn adopt(&self, items: &[Update], stored: &dyn Fn()) -> Result<(), LockError> {
        let left = Cell::new(items.len());
        adopt_into(&self.participants, items, &|piece| {
            left.set(left.get() - piece.len());
            if left.get() == 0 {
                stored();
            }
        })
    }

    pub(crate) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }
}

impl Drop for LocalStore {
    fn drop(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use dunlin_rpc::Server;
    use dunlin_shm::{ShmConfig, ShmDevice};

    use super::*;
    use crate::server::TableSpec;

    const ITEMS: u64 = 1000;

    fn store() -> LocalStore {
        let config = StoreConfig {
            machine: 0,
            machines: 1,
            replicas: 1,
            tables: vec![TableSpec::new(0, "items", ITEMS, 8)],
            one_sided_writes: false,
        };
        let device = ShmDevice::open(ShmConfig::default()).expect("a device");
        LocalStore::serve_on(device, Server::unbound(), &config, 2).expect("a machine")
    }

    /// Neither the source nor the destination of a chunk locks the tables for the whole chunk.
    #[test]
    fn a_chunk_is_given_and_taken_in_pieces() {
        let (from, to) = (store(), store());
        let value = Value::from(vec![7; 8]);
        let items = (0..ITEMS).map(|key| (Key::number(0, key), value.clone()));
        from.load(items).expect("room");
        let (found, taken) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let (chunk, next) = from.chunk(0, &|items| found.borrow_mut().push(items));
        assert_eq!((chunk.len() as u64, next), (ITEMS, None));
        let stored = |piece: &[Update]| taken.borrow_mut().push(piece.len());
        adopt_into(&to.participants, &chunk, &stored).expect("room");
        for pieces in [found.into_inner(), taken.into_inner()] {
            assert_eq!(pieces.iter().sum::<usize>() as u64, ITEMS);
            assert!(pieces.len() > 1, "{pieces:?}");
        }
        let calls = Cell::new(0);
        to.adopt(&chunk, &|| calls.set(calls.get() + 1))
            .expect("room");
        assert_eq!(calls.get(), 1);
    }
}
