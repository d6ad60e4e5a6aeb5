//! Drivers over machines of this process, some of whose operations are never answered.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Mutex;

use super::local::{LocalWire, Machines};
use super::*;
use crate::membership::Epoch;
use crate::protocol::Protocol;
use crate::types::{Address, Value};
use crate::wire::Request;
use crate::{Access, Key, MemoryStore, Once, Participant, Placement};
use dunlin_store::Header;

/// Answers everything but READs, like a machine whose network is gone.
#[derive(Debug)]
struct WithoutReads(LocalWire);

impl Wire for WithoutReads {
    fn send(&mut self, machine: MachineId, request: &Request, epoch: Epoch, tag: Tag) {
        self.0.send(machine, request, epoch, tag);
    }

    fn read(&mut self, _: MachineId, _: Address, _: bool, _: Tag) {}

    fn write(
        &mut self,
        machine: MachineId,
        items: Vec<(Address, Option<Value>)>,
        headers: Vec<(Address, Header)>,
        tag: Tag,
    ) {
        self.0.write(machine, items, headers, tag);
    }

    fn poll(&mut self, now: Instant, arrived: &mut Vec<Arrival>) {
        self.0.poll(now, arrived);
    }

    fn rest(&mut self) {
        self.0.rest();
    }

    fn trouble(&self, machine: MachineId) -> Option<(Instant, String)> {
        self.0.trouble(machine)
    }
}

#[derive(Debug, Default)]
struct Suspicions(AtomicU32);

impl Source for Suspicions {
    fn newer(&self, _: Epoch, _: u64) -> Option<Way> {
        None
    }

    fn suspect(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_read_that_is_never_answered_ends_its_transaction_and_is_suspicious() {
    let placement = Placement::round(1, 1).unwrap();
    let key = |number| Key::number(0, number);
    let mut store = MemoryStore::new(&placement, 1 << 16, 10);
    for number in [1, 2] {
        store.load(key(number), Value::from(vec![0])).unwrap();
    }
    let machines: Machines = Arc::new([Mutex::new(Participant::new(store, 100))]);
    let config = Config {
        protocol: Protocol::FLOCKTX,
        placement,
        log_replicas: Vec::new(),
        epoch: Epoch::FIXED,
        attempts: 2,
        mistakes: crate::Mistakes::NONE,
    };
    let wire = Box::new(WithoutReads(LocalWire::new(&machines)));
    let source = Arc::new(Suspicions::default());
    let way: Way = (wire, Arc::new(config));
    let mut driver = Driver::new(way, Some(source.clone()), 1, 1);
    let access = Access {
        reads: vec![key(1)],
        writes: vec![(key(2), 0)],
    };
    let change = move |_: crate::View<'_>| Step::Commit(vec![(key(2), Some(Value::from(vec![1])))]);
    driver
        .begin(0, Box::new(Once::new(access, change)))
        .unwrap();
    let began = Instant::now();
    let mut ended = None;
    while ended.is_none() || driver.running() > 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "it never ends");
        driver.poll(|_, _, report| ended = Some(report));
        driver.rest();
    }
    let is_named = matches!(
        ended,
        Some(Report::Ended(Err(TransactionError::Unavailable {
            machine: MachineId(0)
        })))
    );
    assert!(is_named, "{ended:?}");
    assert!(source.0.load(Ordering::Relaxed) > 0);
}
