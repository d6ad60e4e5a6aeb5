//! Memory that a server names and grants: its clients read and write it by themselves ([`crate::RemoteRegion`]).

use std::sync::{Arc, OnceLock};

use dunlin_verbs::{
    Access, AnyRegion, Device, LocalKey, Memory, PageKind, RemoteAddress, VerbsError,
};

use super::notifications::Notifications;
use crate::channel::one_sided::NAME_BYTES_MAX;
use crate::error::ServeError;

/// Named memory of a server. Clones name the same memory; handlers keep one to look at it.
///
/// It is made by [`crate::ServerBuilder::serve`], of zeros. Clients change it at any moment: read once what decides
/// something.
///
/// It is reached by all devices of its server that can have memory of others: what `shm` has allocated, `roce` and NICs
/// register as well. Atomics that a NIC does and those of a processor (of `shm`, `roce`) are not atomic against each
/// other, nor are those of two NICs.
///
/// On a device whose grants are mappings (`shm`: [`dunlin_verbs::DeviceAttributes::grants_are_mappings`]) a client that
/// has attached it can read all of it if it may write any, and can do both until its process ends: neither the end of
/// the connection nor that of the client takes the memory away from a process that keeps it mapped. So all clients that
/// may ever attach a writable region are trusted with it.
#[derive(Clone)]
pub struct Region {
    name: Arc<str>,
    length: usize,
    access: Access,
    memory: Arc<OnceLock<RegisteredRegion>>,
    notifications: Option<Notifications>,
}

/// The memory of a [`Region`] as a device's region, whatever the device: what structures that are made for those stand
/// in, such as a table. Made by [`Region::registered`].
#[derive(Clone, Debug)]
pub struct RegisteredRegion(Arc<dyn AnyRegion>);

// SAFETY: each method is that of the region inside, which is the same always.
#[allow(unsafe_code)]
unsafe impl dunlin_verbs::Region for RegisteredRegion {
    fn memory(&self) -> &Memory {
        AnyRegion::memory(&*self.0)
    }

    /// What its server grants to clients.
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
    /// `length` bytes that clients may read, under a name of at most 200 bytes.
    pub fn new(name: &str, length: usize) -> Self {
        Self {
            name: name.into(),
            length,
            access: Access::LOCAL_WRITE | Access::REMOTE_READ,
            memory: Arc::default(),
            notifications: None,
        }
    }

    /// Clients may write it.
    #[must_use]
    pub fn writable(mut self) -> Self {
        self.access |= Access::REMOTE_WRITE;
        self
    }

    /// Clients may do atomics on it.
    #[must_use]
    pub fn atomic(mut self) -> Self {
        self.access |= Access::REMOTE_ATOMIC;
        self
    }

    /// Clients who may write it may say so ([`crate::RemoteRegion::write_notify`]): that is an event here, of which at
    /// most so many wait for [`Region::notifications`] to take them. One more is refused, and its writer told
    /// ([`crate::CallError::Overloaded`]); what it has written is written.
    #[must_use]
    pub fn notified(mut self, most: usize) -> Self {
        self.notifications = Some(Notifications::new(most));
        self
    }

    /// The events of it, if it has some ([`Region::notified`]).
    pub fn notifications(&self) -> Option<&Notifications> {
        self.notifications.as_ref()
    }

    /// Its bytes.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// What clients may do with it at most.
    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bytes, for copies and atomics. `None` before its server serves.
    pub fn memory(&self) -> Option<&Memory> {
        self.memory.get().map(|held| AnyRegion::memory(&*held.0))
    }

    /// The region of the device below, for what stands in such regions. `None` before its server serves.
    pub fn registered(&self) -> Option<RegisteredRegion> {
        self.memory.get().cloned()
    }

    /// What is wrong with it, among `others` of the same server.
    pub(super) fn refuse(&self, others: &[Region]) -> Option<ServeError> {
        let words = if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX {
            format!(
                "a region's name of {} bytes: from 1 to {NAME_BYTES_MAX}",
                self.name.len()
            )
        } else if self.length == 0 {
            format!("the region '{}' has no bytes", self.name)
        } else if others.iter().any(|other| other.name == self.name) {
            format!("two regions '{}'", self.name)
        } else if self.memory.get().is_some() {
            format!("the region '{}' is another server's", self.name)
        } else {
            return None;
        };
        Some(ServeError::Setting(words))
    }

    /// Allocates it, unless another device of the server has done that: then this one takes that one's memory, if it
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

/// The regions that one device of a server has.
pub(super) struct ServedRegions<D: Device> {
    regions: Vec<(Arc<str>, D::Region)>,
}

impl<D: Device> ServedRegions<D> {
    /// Allocates those that no device has yet, and takes over those of the others. Nobody but this process
    /// reaches them by these registrations: each connection that attaches one gets its own.
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

    /// The region of this name: its place in the list and its memory.
    pub(super) fn find(&self, name: &[u8]) -> Option<(usize, &D::Region)> {
        let mut all = self.regions.iter().enumerate();
        all.find(|(_, (known, _))| known.as_bytes() == name)
            .map(|(index, (_, region))| (index, region))
    }
}
