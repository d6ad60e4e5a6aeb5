//! A device whose control thread is sent anything, in any order, with any descriptors; for the fuzz target
//! `shm_control`, see `crate::fuzzing`.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use dunlin_verbs::{Access, Device, QueuePair, QueuePairConfig, ReceiveQueue, Transport};
use rustix::event::EventfdFlags;
use rustix::fs::MemfdFlags;
use rustix::net::{
    recvmsg, sendmsg, AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use super::message::{Message, MESSAGE_BYTES, VERSION};
use super::socket::address;
use crate::{ShmCompletionQueue, ShmConfig, ShmDevice, ShmQueuePair, ShmSharedReceiveQueue};

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(10);
/// Length of a step: its kind, the message, and nine small numbers.
const STEP_BYTES: usize = 12;

/// The device, with objects that may be asked for.
#[derive(Debug)]
pub struct FuzzedControl {
    device: ShmDevice,
    _pairs: Vec<(ShmCompletionQueue, ShmQueuePair)>,
}

impl Default for FuzzedControl {
    fn default() -> Self {
        Self::new()
    }
}

impl FuzzedControl {
    /// Opens a device with a queue pair of each transport.
    ///
    /// # Panics
    /// When this machine has no memory.
    pub fn new() -> Self {
        let device = ShmDevice::open(ShmConfig::default()).unwrap();
        let domain = device.create_protection_domain().unwrap();
        let transports = [
            Transport::ReliableConnection,
            Transport::UnreliableConnection,
            Transport::UnreliableDatagram,
        ];
        let pairs = transports.map(|transport| {
            let queue = device.create_completion_queue(64, None).unwrap();
            let config = QueuePairConfig {
                transport,
                send_completions: &queue,
                receive_completions: &queue,
                send_requests: 16,
                receive_queue: ReceiveQueue::<ShmSharedReceiveQueue>::Own(16),
                segments: 1,
                inline_bytes: 64,
            };
            let mut pair = device.create_queue_pair(&domain, &config).unwrap();
            pair.to_init(Access::all()).unwrap();
            if transport == Transport::UnreliableDatagram {
                pair.to_ready_to_receive(None, Default::default()).unwrap();
            }
            (queue, pair)
        });
        Self {
            device,
            _pairs: pairs.into(),
        }
    }

    /// Opens sessions and sends what the steps specify; afterwards a session that follows the protocol must be
    /// answered.
    ///
    /// # Panics
    /// When it is not.
    pub fn run(&self, steps: &[u8]) {
        let mut sessions = vec![self.open()];
        for step in steps.chunks_exact(STEP_BYTES) {
            let session = &sessions[usize::from(step[2]) % sessions.len()];
            match step[0] % 8 {
                0 if sessions.len() < 8 => sessions.push(self.open()),
                1 => drop(receive(session)),
                _ => say(session, step),
            }
        }
        let honest = self.open();
        say_message(
            &honest,
            Message::Hello {
                version: VERSION,
                uid: [9; 16],
            },
            &[],
        );
        let question = Message::MapRegion {
            request: 77,
            requester: 1,
            token: 1,
            target: u32::MAX,
            key: 1,
        };
        say_message(&honest, question, &[]);
        let asked = Instant::now();
        while !matches!(receive(&honest), Some(Message::Refused { request: 77 })) {
            assert!(asked.elapsed() < PATIENCE, "a session is not answered");
            std::thread::yield_now();
        }
        while self.device.poll_async_event().is_some() {}
    }

    fn open(&self) -> OwnedFd {
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        );
        let socket = socket.unwrap();
        // The control thread has to empty a full backlog of the listener.
        rustix::net::connect(&socket, &address(self.device.core().uid).unwrap()).unwrap();
        socket
    }
}

/// Sends what a step specifies.
fn say(session: &OwnedFd, step: &[u8]) {
    let number = |at: usize| u32::from(step[at]);
    let (request, requester, target) = (number(3), number(4), number(5));
    let token = u64::from(number(6)) << (step[7] % 64);
    let mut bytes = match step[1] % 10 {
        0 => Message::Hello {
            version: VERSION,
            uid: [step[3]; 16],
        }
        .encode(),
        1 => Message::AttachPort {
            request,
            requester,
            token,
            target,
        }
        .encode(),
        2 | 3 => Message::AttachDatagram {
            request,
            requester,
            target,
            queue_key: number(8),
        }
        .encode(),
        4 | 5 => Message::MapRegion {
            request,
            requester,
            token,
            target,
            key: number(8),
        }
        .encode(),
        6 => Message::Refused { request }.encode(),
        7 => Message::Closed { request, requester }.encode(),
        kind => {
            // Any valid kind, and arbitrary words.
            let mut bytes = [0; MESSAGE_BYTES];
            bytes[0] = step[3] % 16;
            for (at, word) in bytes[4..].chunks_exact_mut(4).enumerate() {
                word[0] = step[4 + at % 8];
                word[3] = if kind == 9 { step[4 + at % 8] } else { 0 };
            }
            bytes
        }
    };
    let files = files(step[9]);
    let length = match step[10] {
        0 => usize::from(step[11]).min(MESSAGE_BYTES),
        1 => {
            bytes[usize::from(step[11]) % MESSAGE_BYTES] ^= step[8];
            MESSAGE_BYTES
        }
        _ => MESSAGE_BYTES,
    };
    send(session, &bytes[..length], &files);
}

fn say_message(session: &OwnedFd, message: Message, files: &[OwnedFd]) {
    send(session, &message.encode(), files);
}

/// Descriptors of kinds that nobody asked for.
fn files(choice: u8) -> Vec<OwnedFd> {
    let kind = |choice: u8| match choice % 4 {
        0 => rustix::event::eventfd(0, EventfdFlags::CLOEXEC).ok(),
        1 => rustix::fs::memfd_create("dunlin-fuzz", MemfdFlags::CLOEXEC).ok(),
        2 => Some(std::io::pipe().ok()?.0.into()),
        _ => rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).ok(),
    };
    // Mostly none.
    let count = (choice >> 4).saturating_sub(10);
    (0..count)
        .filter_map(|at| kind(choice.wrapping_add(at)))
        .collect()
}

fn send(session: &OwnedFd, bytes: &[u8], files: &[OwnedFd]) {
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !borrowed.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&borrowed));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    // It fails when the other side has closed the session.
    let _ = sendmsg(session, &[IoSlice::new(bytes)], &mut control, flags);
}

/// The next message, if there is one; its descriptors are closed.
fn receive(session: &OwnedFd) -> Option<Message> {
    let mut bytes = [0; MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut place = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(session, &mut place, &mut control, flags).ok()?;
    Message::decode(&bytes[..received.bytes]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same as the fuzz target, with random input.
    #[test]
    fn a_control_thread_that_is_told_anything_answers_others() {
        let control = FuzzedControl::new();
        let mut state = 1u64;
        for _ in 0..200 {
            let noise: Vec<u8> = (0..STEP_BYTES * 30)
                .map(|_| {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            control.run(&noise);
        }
    }
}
