//! Databases on machines of this process, for clients on simulated hosts.

use std::sync::Arc;
use std::time::Duration;

use dunlin_verbs::Device;

use super::open::ask;
use super::view::RemoteMachine;
use super::{Database, DatabaseBuilder, OpenError};
use crate::host::{HostOf, LocalAddresses};
use crate::server::LocalStore;
use crate::types::MachineId;

/// Time within which a machine must answer a thread outside of a simulation, where time is real; also covers a process
/// that is suspended.
const OUTSIDE: Duration = Duration::from_secs(3600);

impl DatabaseBuilder {
    /// For a program on the simulated host of this device: [`DatabaseBuilder::open`] then finds machines of this
    /// process by their addresses. Must be opened by a thread of that host.
    pub fn on<D: Device + Clone>(mut self, device: &D, addresses: &LocalAddresses) -> Self {
        self.host = Arc::new(HostOf {
            device: device.clone(),
            addresses: addresses.clone(),
        });
        self
    }

    /// Opens the database of these machines, all of them in order, over a device that reaches theirs: the information
    /// that [`DatabaseBuilder::open`] requests from them is available directly.
    ///
    /// # Errors
    /// When a machine refuses, or does not grant the memory that the protocol needs.
    pub fn open_on<D: Device + Clone>(
        self,
        device: &D,
        stores: &[LocalStore],
    ) -> Result<Database, OpenError> {
        let this = self.on(device, &LocalAddresses::default());
        let (this, named) = this.decided(stores.len())?;
        let first = stores.first().ok_or(OpenError::NoAddress)?.catalogue();
        let (tables, replicas) = (first.tables.clone(), first.replicas);
        let mut machines = Vec::new();
        for store in stores {
            let catalogue = store.catalogue();
            let id = MachineId(catalogue.machine);
            let (builder, acceptor) = (this.client.clone(), store.server().acceptor());
            let client = builder.connect_on(device.clone(), &acceptor);
            let client = client.map_err(|source| OpenError::Connect {
                address: id.to_string(),
                source: Box::new(source),
            })?;
            let client = client.within(OUTSIDE);
            if named.is_none() {
                // Its answer confirms that the machine has accepted this client, whichever preset `auto` has chosen:
                // many may connect at once.
                ask(&client, &id.to_string())?;
            }
            machines.push(RemoteMachine {
                id,
                client,
                address: id.to_string(),
                incarnation: catalogue.incarnation,
                regions: Vec::new(),
            });
        }
        this.of_machines(named, (tables, replicas), machines)
    }
}
