//! What the fuzz targets in `/fuzz` need of the inside. Not part of the interface; nothing else may use it.

use dunlin_verbs::{Access, Device, Memory, Region};

use crate::channel::inbox::{Arrival, Inbox};
use crate::channel::line::{self, Descriptor, Header, BODY_BYTES, HEADER_BYTES, LINE_BYTES};
use crate::channel::outbox::Outbox;
use crate::error::WireFailure;

/// Lines of the ring that is fuzzed.
const LINES: usize = 64;
/// Where it begins in its region.
const START: usize = 4096;
/// Longest payload in it.
const EAGER: usize = 1000;

/// A ring that bytes are written into.
#[derive(Debug)]
pub struct FuzzedRing {
    region: <dunlin_shm::ShmDevice as Device>::Region,
}

impl Default for FuzzedRing {
    fn default() -> Self {
        Self::new()
    }
}

impl FuzzedRing {
    /// Zeros.
    ///
    /// # Panics
    /// When this machine gives no memory.
    pub fn new() -> Self {
        let device = crate::devices::shared_memory().expect("a device");
        let domain = device.create_protection_domain().expect("a domain");
        let region = device
            .allocate_region(&domain, START + LINES * LINE_BYTES, Access::LOCAL_WRITE)
            .expect("a region");
        Self { region }
    }

    fn memory(&self) -> &Memory {
        self.region.memory()
    }

    /// Receives from a ring that holds `bytes` (short of it: zeros). The first byte of each line says which lap the line's tag is
    /// made to be of; 255 leaves the tag as it is.
    ///
    /// # Panics
    /// When a received message breaks a promise of the inbox.
    pub fn receive(&self, bytes: &[u8]) {
        let memory = self.memory();
        memory.fill(START, LINES * LINE_BYTES, 0);
        for (i, part) in bytes.chunks(1 + LINE_BYTES).take(LINES).enumerate() {
            let (lap, body) = part.split_first().expect("chunks are not empty");
            memory.write(START + i * LINE_BYTES, body);
            if *lap != 255 {
                let tag = line::tag(u32::from(lap % 4), u64::from(*lap));
                memory.write(START + i * LINE_BYTES + LINE_BYTES - 8, &tag.to_le_bytes());
            }
        }
        let mut inbox = Inbox::new(START, LINES, EAGER);
        let mut outbox = Outbox::new(LINES, EAGER);
        let mut lines = 0;
        while let Ok(Some(Arrival {
            header,
            peer_consumed,
        })) = inbox.receive(memory)
        {
            let payload = inbox.payload(header);
            assert!(payload.len() <= EAGER);
            assert_eq!(payload.len(), header.length as usize);
            lines += line::lines_for(payload.len()) as u64;
            assert_eq!(inbox.consumed(), lines);
            assert!(lines <= 2 * LINES as u64, "each line has one lap only");
            let _ = outbox.peer_consumed(peer_consumed);
            assert!(outbox.room() <= LINES);
            failure(payload);
            descriptor(payload);
        }
    }
}

/// Reads a header from a peer and, when it is one, writes it again.
///
/// # Panics
/// When what was read is written as other bytes.
pub fn header(bytes: &[u8]) {
    if let Some((body, _)) = bytes.split_first_chunk::<BODY_BYTES>() {
        if let Some(header) = Header::read(body) {
            assert_eq!(header.encode(), body[..HEADER_BYTES]);
        }
    }
}

/// Reads a descriptor from a peer.
///
/// # Panics
/// When what was read is written as another descriptor.
pub fn descriptor(bytes: &[u8]) {
    if let Some(descriptor) = Descriptor::decode(bytes) {
        assert_eq!(Descriptor::decode(&descriptor.encode()), Some(descriptor));
    }
}

/// Reads a failure from a peer.
///
/// # Panics
/// When writing what was read and reading it again changes its reason or number.
pub fn failure(bytes: &[u8]) {
    if let Some(failure) = WireFailure::decode(bytes) {
        let again = WireFailure::decode(&failure.encode()).expect("our own failures can be read");
        assert_eq!(
            (again.reason, again.number),
            (failure.reason, failure.number)
        );
        assert!(failure.message.starts_with(&again.message));
        let _ = failure.into_call_error().to_string();
    }
}
