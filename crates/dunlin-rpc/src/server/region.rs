//! Named memory that a server grants to its clients, which read and write it one-sided ([`crate::RemoteRegion`]).

use std::sync::{Arc, OnceLock};

use dunlin_verbs::{
    Access, AnyRegion, Device, LocalKey, Memory, PageKind, RemoteAddress, VerbsError,
};

use super::notifications::Notifications;
use crate::channel::one_sided::NAME_BYTES_MAX;
use crate::error::ServeError;

/// Named memory of a server. Clones refer to the same memory; handlers keep one to access it.
///
/// The memory is allocated, zeroed, by [`crate::ServerBuilder::serve`]. Clients may change it at any moment: read a
/// value that decides something only once.
///
/// It is reachable over all devices of its server that can register the memory of another device: what `shm` has
/// allocated, `roce` and NICs register as well. Atomics executed by a NIC and those executed by a processor (`shm`,
/// `roce`) are not atomic with respect to each other, nor are those of two NICs.
///
/// On a device whose grants are mappings (`shm`: [`dunlin_verbs::DeviceAttributes::grants_are_mappings`]) a client that
/// has attached a region can read all of it if it may write any of it, and it can do both until its process ends:
/// neither closing the connection nor dropping the client revokes the mapping. So all clients that may ever attach a
/// writable region must be trusted with it.
#[derive(Clone)]
pub struct Region {
    name: Arc<str>,
    length: usize,
    access: Access,
    memory: Arc<OnceLock<RegisteredRegion>>,
    notifications: Option<Notifications>,
}

/// The memory of a [`Region`] as a device's region, independent of the device, for structures that live in such
/// regions, such as a table. Made by [`Region::registered`].
#[derive(Clone, Debug)]
pub struct RegisteredRegion(Arc<dyn AnyRegion>);

// SAFETY: each method is that of the region inside, which never changes.
#[allow(unsafe_code)]
unsafe impl dunlin_verbs::Region for RegisteredRegion {
    fn memory(&self) -> &Memory {
        AnyRegion::memory(&*self.0)
    }

    /// The access that the server grants to clients.
    fn access(&self) -> Access {
        AnyRegion::access(&*self.0)
    }

    fn local_key(&self) -> LocalKey {
        AnyRegion::local_key(&*self.0)
    }

    fn remote(&self) -> RemoteAddress {
        AnyRegion::remote(&*self.0)
    }

    fn page_kind(&self) -> PageKind {
        AnyRegion::page_kind(&*self.0)
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region")
            .field("name", &self.name)
            .field("length", &self.length)
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl Region {
    /// A region of `length` bytes that clients may read, under a name of at most 200 bytes.
    pub fn new(name: &str, length: usize) -> Self {
        Self {
            name: name.into(),
            length,
            access: Access::LOCAL_WRITE | Access::REMOTE_READ,
            memory: Arc::default(),
            notifications: None,
        }
    }

    /// Also lets clients write it.
    #[must_use]
    pub fn writable(mut self) -> Self {
        self.access |= Access::REMOTE_WRITE;
        self
    }

    /// Also lets clients execute atomics on it.
    #[must_use]
    pub fn atomic(mut self) -> Self {
        self.access |= Access::REMOTE_ATOMIC;
        self
    }

    /// Lets clients that may write it also notify the server of a write ([`crate::RemoteRegion::write_notify`]). At
    /// most `most` notifications wait to be taken from [`Region::notifications`]. Further ones are refused, with
    /// [`crate::CallError::Overloaded`] for the writer; the write itself has been executed.
    #[must_use]
    pub fn notified(mut self, most: usize) -> Self {
        self.notifications = Some(Notifications::new(most));
        self
    }

    /// The notifications of writes, if they were enabled ([`Region::notified`]).
    pub fn notifications(&self) -> Option<&Notifications> {
        self.notifications.as_ref()
    }

    /// Its length in bytes.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// The most that clients may do with it.
    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The memory, for copies and atomics. `None` before its server serves.
    pub fn memory(&self) -> Option<&Memory> {
        self.memory.get().map(|held| AnyRegion::memory(&*held.0))
    }

    /// The device's region, for structures that live in such regions. `None` before its server serves.
    pub fn registered(&self) -> Option<RegisteredRegion> {
        self.memory.get().cloned()
    }

    /// Returns what is wrong with it, given the `others` of the same server.
    pub(super) fn refuse(&self, others: &[Region]) -> Option<ServeError> {
        let words = if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX {
            format!(
                "the name of a region has {} bytes: it must have from 1 to {NAME_BYTES_MAX}",
                self.name.len()
            )
        } else if self.length == 0 {
            format!("the region '{}' has a length of 0 bytes", self.name)
        } else if others.iter().any(|other| other.name == self.name) {
            format!("duplicate region '{}'", self.name)
        } else if self.memory.get().is_some() {
            format!("the region '{}' belongs to another server", self.name)
        } else {
            return None;
        };
        Some(ServeError::Setting(words))
    }

    /// Allocates it, unless another device of the server has done so: then this device registers that memory, if it
    /// can.
    fn serve<D: Device>(
        &self,
        device: &D,
        domain: &D::ProtectionDomain,
    ) -> Result<Option<D::Region>, VerbsError> {
        if let Some(memory) = self.memory.get() {
            return device.adopt_region(domain, &memory.0, self.access);
        }
        let region = device.allocate_region(domain, self.length, self.access)?;
        let ours = self
            .memory
            .set(RegisteredRegion(Arc::new(region.clone())))
            .is_ok();
        Ok(ours.then_some(region))
    }
}

/// The regions of a server on one of its devices.
pub(super) struct ServedRegions<D: Device> {
    regions: Vec<(Arc<str>, D::Region)>,
}

impl<D: Device> ServedRegions<D> {
    /// Allocates those that no device has yet, and registers those of other devices. Only this process uses these
    /// registrations: each connection that attaches a region gets its own.
    pub(super) fn allocate(device: &D, regions: &[Region]) -> Result<Self, VerbsError> {
        let mut served = Vec::new();
        if !regions.is_empty() {
            let domain = device.create_protection_domain()?;
            for region in regions {
                if let Some(memory) = region.serve(device, &domain)? {
                    served.push((Arc::clone(&region.name), memory));
                }
            }
        }
        Ok(Self { regions: served })
    }

    /// The region of this name: its index in the list and its memory.
    pub(super) fn find(&self, name: &[u8]) -> Option<(usize, &D::Region)> {
        let mut all = self.regions.iter().enumerate();
        all.find(|(_, (known, _))| known.as_bytes() == name)
            .map(|(index, (_, region))| (index, region))
    }
}
