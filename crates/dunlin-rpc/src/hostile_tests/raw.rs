//! Clients of rings as these tests make them, and what only they do.

use super::*;
use crate::admission::credits::CREDITS_OF_MEMORY;

pub(super) type Raw = crate::hostile::ring::Ring<ShmDevice>;

impl Raw {
    /// Dials a server and opens a connection with these parameters.
    pub(super) fn dial(device: &ShmDevice, server: &RunningServer, receives: usize) -> Self {
        Self::dial_as(device, server, receives, None)
    }

    /// As [`Raw::dial`], as a lane of this sender, whose credits the server counts.
    pub(super) fn dial_as(
        device: &ShmDevice,
        server: &RunningServer,
        receives: usize,
        sender: Option<u64>,
    ) -> Self {
        Self::dial_in(Form::Twice, device, server, receives, sender)
    }

    /// As [`Raw::dial_as`], with batches of this form.
    pub(super) fn dial_in(
        form: Form,
        device: &ShmDevice,
        server: &RunningServer,
        receives: usize,
        sender: Option<u64>,
    ) -> Self {
        let (mut raw, reply) = Self::open(device, server, receives, sender, form);
        raw.connect(&reply.endpoint, &reply.parameters);
        raw
    }

    /// As [`Raw::dial_as`], only as far as the server's reply: the queue pair is not joined to the server's.
    pub(super) fn open(
        device: &ShmDevice,
        server: &RunningServer,
        receives: usize,
        sender: Option<u64>,
        form: Form,
    ) -> (Self, OpenReply) {
        let raw = Self::new(device, receives, form);
        let preset = if sender.is_some() { "flock" } else { "plain" };
        let mut parameters = raw.parameters();
        parameters.extend(sender.map(|sender| ("sender".to_owned(), sender)));
        let door = Door::port(server, None);
        let reply = door.open(preset, raw.queue_pair.address(), parameters);
        assert_eq!(
            reply.parameters.get("credits").copied(),
            sender.map(|_| u64::from(CREDITS_OF_MEMORY)),
            "credits are counted for those who said that they count"
        );
        (raw, reply)
    }

    /// Asks for credits and reports this coalescing degree.
    pub(super) fn ask(&mut self, degree: u32) -> bool {
        self.post(0, &[], Some(1 << 31 | degree))
    }

    /// What the server granted last: the total, and whether the lane is active.
    pub(super) fn granted(&self) -> (u32, bool) {
        let word = self.inlet.memory().atomic_u64(128).load(Ordering::Acquire);
        (word as u32, word >> 32 == 1)
    }
}
