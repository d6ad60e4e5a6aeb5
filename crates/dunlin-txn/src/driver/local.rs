//! Machines of this process: requests are answered directly in the sending thread.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::wire::{Arrival, Tag, Wire};
use crate::membership::Epoch;
use crate::memory::MemoryStore;
use crate::participant::Participant;
use crate::types::{Address, MachineId, Value};
use crate::wire::Request;
use dunlin_store::Header;

/// The machines.
pub(crate) type Machines = Arc<[Mutex<Participant<MemoryStore>>]>;

/// The connection to them.
#[derive(Debug)]
pub(crate) struct LocalWire {
    machines: Machines,
    arrived: Vec<Arrival>,
}

impl LocalWire {
    pub(crate) fn new(machines: &Machines) -> LocalWire {
        LocalWire {
            machines: Arc::clone(machines),
            arrived: Vec::new(),
        }
    }

    fn at<T>(
        &self,
        machine: MachineId,
        what: impl FnOnce(&mut Participant<MemoryStore>) -> T,
    ) -> Option<T> {
        let participant = self.machines.get(usize::from(machine.0))?;
        let mut participant = participant.lock().unwrap_or_else(PoisonError::into_inner);
        Some(what(&mut participant))
    }
}

impl Wire for LocalWire {
    fn send(&mut self, machine: MachineId, request: &Request, epoch: Epoch, tag: Tag) {
        let answer = self.at(machine, |participant| participant.handle(request, epoch));
        self.arrived.push(match answer {
            Some(answer) => Arrival::Answer(machine, answer),
            None => Arrival::Lost(machine, tag),
        });
    }

    fn read(&mut self, machine: MachineId, address: Address, _item: bool, tag: Tag) {
        let header = self.at(machine, |participant| {
            participant.store().header_at(address)
        });
        self.arrived.push(match header.flatten() {
            Some(header) => Arrival::Header(tag, header.0, None),
            None => Arrival::Failed(tag),
        });
    }

    fn write(
        &mut self,
        machine: MachineId,
        items: Vec<(Address, Option<Value>)>,
        headers: Vec<(Address, Header)>,
        tag: Tag,
    ) {
        let written = self.at(machine, |participant| {
            let store = participant.store_mut();
            let mut all = true;
            for (address, value) in items {
                all &= store.write_item_at(address, value);
            }
            for (address, header) in headers {
                all &= all && store.write_header_at(address, crate::Version(header.version()));
            }
            all
        });
        self.arrived.push(match written {
            Some(true) => Arrival::Written(tag),
            _ => Arrival::Failed(tag),
        });
    }

    fn poll(&mut self, _now: Instant, arrived: &mut Vec<Arrival>) {
        arrived.append(&mut self.arrived);
    }

    fn rest(&mut self) {
        std::thread::yield_now();
    }

    fn trouble(&self, _machine: MachineId) -> Option<(Instant, String)> {
        None
    }
}
