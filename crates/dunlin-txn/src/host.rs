//! What a program needs from its host, real or simulated: threads, random numbers, and connections to others.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::sync::{Arc, Mutex};

use dunlin_rpc::{Client, ClientBuilder, ConnectError, LocalAcceptor};
use dunlin_verbs::{random, thread, thread::Running, Device, Work};

/// A host.
pub(crate) trait Host: Debug + Send + Sync {
    /// Starts a thread.
    fn start(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<Running>;
    /// Returns a number that is unique, but the same in each run of a simulation.
    fn number(&self) -> io::Result<u64>;
    /// The function that charges work, where cores are simulated.
    fn charge(&self) -> Option<fn(Work)>;
    /// Connects to an address.
    fn connect(&self, client: ClientBuilder, address: &str) -> Result<Client, ConnectError>;
}

/// The real host.
#[derive(Debug)]
pub(crate) struct Here;

impl Host for Here {
    fn start(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<Running> {
        Running::start(name.to_owned(), run)
    }

    fn number(&self) -> io::Result<u64> {
        random::number()
    }

    fn charge(&self) -> Option<fn(Work)> {
        None
    }

    fn connect(&self, client: ClientBuilder, address: &str) -> Result<Client, ConnectError> {
        client.connect(address)
    }
}

/// The machines of this process on simulated hosts, by address. Clones share the same map.
#[derive(Clone, Debug, Default)]
pub struct LocalAddresses(Arc<Mutex<HashMap<String, LocalAcceptor>>>);

impl LocalAddresses {
    /// Registers a machine at an address, in place of any other.
    pub(crate) fn put(&self, address: &str, acceptor: LocalAcceptor) {
        thread::lock(&self.0).insert(address.to_owned(), acceptor);
    }

    fn get(&self, address: &str) -> Option<LocalAcceptor> {
        thread::lock(&self.0).get(address).cloned()
    }
}

/// The host of a device.
#[derive(Debug)]
pub(crate) struct HostOf<D> {
    pub(crate) device: D,
    pub(crate) addresses: LocalAddresses,
}

impl<D: Device + Clone> Host for HostOf<D> {
    fn start(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<Running> {
        self.device.spawn(name.to_owned(), None, run)
    }

    fn number(&self) -> io::Result<u64> {
        self.device.seed().map_or_else(random::number, Ok)
    }

    fn charge(&self) -> Option<fn(Work)> {
        Some(D::charge)
    }

    fn connect(&self, client: ClientBuilder, address: &str) -> Result<Client, ConnectError> {
        match self.addresses.get(address) {
            Some(acceptor) => client.connect_on(self.device.clone(), &acceptor),
            None => {
                let words = format!("no machine of this process has the address {address}");
                Err(ConnectError::Setting(words))
            }
        }
    }
}
