//! A target that grants by key, does nothing, and asserts that nothing else is asked of it than what it granted.

use dunlin_roce::packet::{AtomicTarget, RemoteRange};
use dunlin_roce::reliable::{AccessError, Delivered, Target};
use dunlin_verbs::Access;

/// Where WRITEs and atomics may go; READs may go anywhere.
const FIRST: u64 = 0x1000;
const END: u64 = 0x1000 + (1 << 20);

/// What one packet did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    pub(crate) checks: u32,
    pub(crate) writes: u32,
    pub(crate) atomics: u32,
    pub(crate) taken: u32,
    pub(crate) filled: u32,
    pub(crate) delivered: u32,
    pub(crate) failed: u32,
}

/// A RECEIVE that was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    capacity: u64,
    filled: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// Messages may break off: the RECEIVE of one stays for the next, and another WRITE begins in the middle of one.
    pub(crate) unreliable: bool,
    pub(crate) revoked: bool,
    pub(crate) broken_receives: bool,
    pub(crate) receives: u32,
    pub(crate) capacity: u64,
    pub(crate) current: Option<Receive>,
    pub(crate) effects: Effects,
    /// The last range that was granted for a WRITE, and how much of it was written.
    granted: Option<(RemoteRange, u64)>,
    /// All that was granted for READs.
    pub(crate) readable: Vec<RemoteRange>,
    /// The word that all atomics change.
    pub(crate) value: u64,
    /// What the last atomic found.
    pub(crate) original: u64,
}

impl Watched {
    fn grants(&self, address: u64, key: u32, bytes: u64, access: Access) -> bool {
        let of_key = match key {
            1 => Access::REMOTE_WRITE,
            2 => Access::REMOTE_READ,
            3 => Access::REMOTE_ATOMIC,
            4 => Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            _ => Access::empty(),
        };
        let within = address
            .checked_add(bytes)
            .is_some_and(|end| access == Access::REMOTE_READ || address >= FIRST && end <= END);
        !self.revoked && within && of_key.contains(access)
    }
}

impl Target for Watched {
    fn check(&mut self, range: &RemoteRange, access: Access) -> Result<(), AccessError> {
        self.effects.checks += 1;
        assert!(
            range.bytes > 0 || self.unreliable,
            "nothing is accessed, so no key is needed"
        );
        if !self.grants(range.address, range.key, range.bytes.into(), access) {
            return Err(AccessError);
        }
        if access == Access::REMOTE_WRITE {
            let unfinished = self
                .granted
                .filter(|(range, written)| *written > 0 && *written < range.bytes.into());
            assert!(
                unfinished.is_none() || self.unreliable,
                "a WRITE begins within another one"
            );
            self.granted = Some((*range, 0));
        } else {
            self.readable.push(*range);
        }
        Ok(())
    }

    fn write(&mut self, address: u64, key: u32, bytes: &[u8]) -> Result<(), AccessError> {
        if self.unreliable && !bytes.is_empty() {
            let granted = self.grants(address, key, bytes.len() as u64, Access::REMOTE_WRITE);
            self.effects.writes += u32::from(granted);
            return granted.then_some(()).ok_or(AccessError);
        }
        let (range, written) = self.granted.as_mut().expect("a granted range");
        assert!(!bytes.is_empty());
        assert_eq!((address, key), (range.address + *written, range.key));
        let end = *written + bytes.len() as u64;
        assert!(end <= range.bytes.into(), "beyond what was granted");
        if self.revoked {
            return Err(AccessError);
        }
        *written = end;
        self.effects.writes += 1;
        Ok(())
    }

    fn atomic(
        &mut self,
        target: &AtomicTarget,
        change: &dyn Fn(u64) -> Option<u64>,
    ) -> Result<u64, AccessError> {
        assert!(target.address.is_multiple_of(8));
        if !self.grants(target.address, target.key, 8, Access::REMOTE_ATOMIC) {
            return Err(AccessError);
        }
        self.original = self.value;
        self.value = change(self.value).unwrap_or(self.value);
        self.effects.atomics += 1;
        Ok(self.original)
    }

    fn take_receive(&mut self) -> Option<u64> {
        if let (true, Some(current)) = (self.unreliable, &mut self.current) {
            current.filled = 0;
            return Some(current.capacity);
        }
        assert!(self.current.is_none(), "one RECEIVE at a time");
        self.receives = self.receives.checked_sub(1)?;
        self.current = Some(Receive {
            capacity: self.capacity,
            filled: 0,
        });
        self.effects.taken += 1;
        Some(self.capacity)
    }

    fn fill_receive(&mut self, offset: u32, bytes: &[u8]) -> Result<(), AccessError> {
        let current = self.current.as_mut().expect("a RECEIVE was taken");
        assert_eq!(current.filled, offset.into());
        let end = current.filled + bytes.len() as u64;
        assert!(end <= current.capacity, "beyond the RECEIVE");
        if self.broken_receives {
            return Err(AccessError);
        }
        current.filled = end;
        self.effects.filled += 1;
        Ok(())
    }

    fn deliver(&mut self, delivered: Delivered) {
        let receive = self.current.take().expect("a RECEIVE was taken");
        match delivered.write {
            true => {
                assert!(receive.filled == 0 || self.unreliable);
                assert!(delivered.immediate.is_some());
            }
            false => assert_eq!(u64::from(delivered.bytes), receive.filled),
        }
        self.effects.delivered += 1;
    }

    fn fail_receive(&mut self, _: bool) {
        self.current.take().expect("a RECEIVE was taken");
        self.effects.failed += 1;
    }
}
