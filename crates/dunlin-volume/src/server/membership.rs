//! Changes to a volume other than to its blocks: it is created, an epoch begins, a copy becomes whole, it is removed.

use dunlin::{HandlerError, Request, Responder};

use super::state::Copy;
use super::{lock, malformed, replaced, unknown, Service};
use crate::types::{Version, LONGEST_NAME};
use crate::wire::{code, decode, encode, Create, Described, Named, Promise, PROTOCOL};

impl Service {
    pub(super) fn describe(
        &self,
        request: &Request<'_>,
        reply: &mut Responder<'_>,
    ) -> Result<(), HandlerError> {
        let name = request.payload();
        if name.len() > LONGEST_NAME {
            return Err(malformed());
        }
        let state = lock(&self.state);
        let mut copies = state.copies.values();
        let copy = copies.find(|copy| copy.described.shape.name.as_bytes() == name);
        reply.write(&encode(&copy.ok_or_else(unknown)?.described))
    }

    /// Writes what must be remembered to the disk, if there is one.
    fn save(&self, described: &Described) -> Result<(), HandlerError> {
        let saved = self.disk.as_ref().map(|disk| disk.folder.save(described));
        saved
            .unwrap_or(Ok(()))
            .map_err(|error| HandlerError::new(code::LOG, error.to_string()))
    }

    pub(super) fn create(
        &self,
        request: &Request<'_>,
        _: &mut Responder<'_>,
    ) -> Result<(), HandlerError> {
        let create: Create = decode(request.payload()).ok_or_else(malformed)?;
        let described = create.as_described;
        let shape = &described.shape;
        let refuse = |code, why: String| Err(HandlerError::new(code, why));
        if let Err(error) = shape.validate() {
            return refuse(code::MALFORMED, error.to_string());
        }
        let Described { epoch, settled, .. } = described;
        if described.place >= shape.servers || epoch > Version::MOST_EPOCHS || settled > epoch {
            return Err(malformed());
        }
        let _one = lock(&self.changing);
        let mut taken = 0_u64;
        for copy in lock(&self.state).copies.values() {
            let other = &copy.described.shape;
            if other.name == shape.name || other.id == shape.id {
                return refuse(
                    code::EXISTS,
                    format!("the volume '{}' already exists", other.name),
                );
            }
            taken = taken.saturating_add(other.bytes_of_server());
        }
        let wanted = shape.bytes_of_server();
        if taken.saturating_add(wanted) > self.capacity {
            let capacity = self.capacity;
            return refuse(
                code::FULL,
                format!(
                    "not enough space: the volume needs {wanted} bytes, {taken} of {capacity} are taken (capacity)"
                ),
            );
        }
        self.save(&described)?;
        lock(&self.state)
            .copies
            .insert(shape.id, Copy::new(described));
        Ok(())
    }

    /// Promises an epoch. When this is answered, requests of older epochs are refused, and everything accepted before
    /// is visible in versions and digests.
    pub(super) fn promise(
        &self,
        request: &Request<'_>,
        reply: &mut Responder<'_>,
    ) -> Result<(), HandlerError> {
        let Promise {
            volume,
            epoch,
            owner,
            protocol,
        } = decode(request.payload()).ok_or_else(malformed)?;
        if protocol != PROTOCOL {
            let why = format!(
                "the client uses protocol {protocol} of volumes, but this server uses {PROTOCOL}"
            );
            return Err(HandlerError::new(code::MALFORMED, why));
        }
        if epoch > Version::MOST_EPOCHS {
            return Err(malformed());
        }
        let _one = lock(&self.changing);
        let mut state = lock(&self.state);
        let copy = state.copies.get_mut(&volume).ok_or_else(unknown)?;
        let known = &mut copy.described;
        if (epoch, owner) != (known.epoch, known.owner) {
            if epoch <= known.epoch {
                return Err(replaced(known.epoch));
            }
            (known.epoch, known.owner) = (epoch, owner);
        }
        let described = known.clone();
        // Under the same lock as the epoch check of writes: everything after this position is of the new epoch.
        let position = self.disk.as_ref().map(|disk| (disk, disk.log.position()));
        drop(state);
        if let Some((disk, position)) = position {
            disk.log.wait(position)?;
        }
        self.save(&described)?;
        reply.write(&encode(&described))
    }

    /// Makes the copy count. When this is answered, it is settled in the epoch.
    pub(super) fn join(
        &self,
        request: &Request<'_>,
        _: &mut Responder<'_>,
    ) -> Result<(), HandlerError> {
        let Named { volume, epoch } = decode(request.payload()).ok_or_else(malformed)?;
        let _one = lock(&self.changing);
        let described = {
            let state = lock(&self.state);
            let known = &state.copies.get(&volume).ok_or_else(unknown)?.described;
            if known.epoch != epoch {
                return Err(replaced(known.epoch));
            }
            Described {
                whole: true,
                settled: epoch,
                ..known.clone()
            }
        };
        self.save(&described)?;
        if let Some(copy) = lock(&self.state).copies.get_mut(&volume) {
            copy.described = described;
        }
        Ok(())
    }

    pub(super) fn remove(
        &self,
        request: &Request<'_>,
        _: &mut Responder<'_>,
    ) -> Result<(), HandlerError> {
        let Named { volume, epoch } = decode(request.payload()).ok_or_else(malformed)?;
        let _one = lock(&self.changing);
        let known = {
            let state = lock(&self.state);
            let copy = state.copies.get(&volume).ok_or_else(unknown)?;
            copy.described.epoch
        };
        if known != epoch {
            return Err(replaced(known));
        }
        if let Some(disk) = &self.disk {
            let removed = disk.folder.remove(volume);
            removed.map_err(|error| HandlerError::new(code::LOG, error.to_string()))?;
        }
        lock(&self.state).remove(volume);
        Ok(())
    }
}
