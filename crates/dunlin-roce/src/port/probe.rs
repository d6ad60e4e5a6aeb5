//! Probing of the path MTU: before a queue pair is connected to a peer on another host, a datagram as long as its
//! packets will be is sent to the peer's device, which answers with one of the same length. A hop on the way that
//! carries less than the links of both ends drops it, and shorter ones are tried (as RFC 8899 does below other
//! protocols). The routing table knows of such hops only if ICMP messages come back, and not before something was
//! dropped.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{with_train, Port};
use crate::address::Peer;
use crate::packet::{Header, Operation, Psn, Service, DEFAULT_PARTITION_KEY, MAX_PAYLOAD_BYTES};
use crate::socket::{Count, Link, Path, Route};
use crate::sync::{lock, now_ns, random_u64};
use crate::work::Gone;

/// Destination of probes and answers: no queue pair has this number, which on InfiniBand is that of general services.
pub(super) const PROBE_QUEUE_PAIR: u32 = 1;
/// Their queue key.
const PROBE_KEY: u32 = 0x6475_6e6c;
/// Immediate data of both.
const QUESTION: u32 = 0;
const ANSWER: u32 = 1;
/// By how much the headers of a WRITE with immediate data are longer than those of a datagram.
const BESIDE_BYTES: usize = 8;
/// Payloads that are tried if a longer one does not get through: what Ethernet with 9,000 and with 1,500 bytes carries
/// besides tunnels, what every IPv6 link carries, and what every IPv4 link carries.
const SHORTER: [usize; 4] = [8768, 1280, 1088, 384];
/// How long to wait for an answer before the probe is repeated, or a shorter one is sent.
const WAITS: [Duration; 3] = [
    Duration::from_millis(20),
    Duration::from_millis(60),
    Duration::from_millis(120),
];
/// Interval between two checks for an answer.
const LOOK: Duration = Duration::from_micros(100);
/// Minimum interval between two answers, so that endless probes take little of a polling thread's time. A prober
/// without an answer tries again.
const ANSWERS_APART_NS: u64 = 100_000;
/// How long a path is assumed not to change, as in kernels.
const KEPT: Duration = Duration::from_secs(600);
/// How long a path without any answer is not probed again, so that not each of many connections has to wait for it.
const KEPT_SILENT: Duration = Duration::from_secs(10);
/// Maximum number of paths remembered.
const WAYS_MAX: usize = 4096;

/// The outstanding probes, and the known paths.
#[derive(Debug, Default)]
pub(crate) struct Probes {
    /// By the number that an answer repeats.
    asked: Mutex<HashMap<u64, Asked>>,
    /// By the peer's host, with the time of expiry.
    known: Mutex<HashMap<IpAddr, (Way, Instant)>>,
    /// When the next probe may be answered.
    next_answer_ns: AtomicU64,
}

/// The result for a path.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Everything that the links of both ends carry, up to this many bytes of payload: the peer that was probed could
    /// not use more, but another may.
    Whole(usize),
    /// A payload of this many bytes, and no longer one.
    AtMost(usize),
    /// There was no answer.
    Silent,
}

#[derive(Debug)]
struct Asked {
    peer: SocketAddr,
    /// Lengths of the probes: an answer is as long as one of them.
    lengths: Vec<usize>,
    /// The longest payload that was answered.
    answered: usize,
}

impl Probes {
    /// The part of a link's limits that the path to a host carries, as far as that is known.
    pub(crate) fn limit(&self, host: IpAddr, link: Link) -> Link {
        match self.known(host) {
            Some(Way::AtMost(payload_bytes)) => link.within(payload_bytes),
            Some(Way::Whole(_) | Way::Silent) | None => link,
        }
    }

    fn known(&self, host: IpAddr) -> Option<Way> {
        let known = lock(&self.known);
        let (way, until) = known.get(&host)?;
        (Instant::now() < *until).then_some(*way)
    }

    /// Whether probing payloads of this length is unnecessary.
    fn is_known(&self, host: IpAddr, payload_bytes: usize) -> bool {
        match self.known(host) {
            Some(Way::Whole(asked)) => payload_bytes <= asked,
            Some(Way::AtMost(_) | Way::Silent) => true,
            None => false,
        }
    }

    fn learn(&self, host: IpAddr, way: Way) {
        let now = Instant::now();
        let kept = match way {
            Way::Whole(_) | Way::AtMost(_) => KEPT,
            Way::Silent => KEPT_SILENT,
        };
        let mut known = lock(&self.known);
        if known.len() >= WAYS_MAX {
            known.retain(|_, (_, until)| now < *until);
        }
        if known.len() < WAYS_MAX {
            known.insert(host, (way, now + kept));
        }
    }

    fn note(&self, number: u64, source: &SocketAddr, payload_bytes: usize) {
        if let Some(asked) = lock(&self.asked).get_mut(&number) {
            if asked.peer == *source && asked.lengths.contains(&payload_bytes) {
                asked.answered = asked.answered.max(payload_bytes);
            }
        }
    }

    fn may_answer(&self, now_ns: u64) -> bool {
        let next = self.next_answer_ns.load(Ordering::Relaxed);
        if now_ns < next {
            return false;
        }
        let after = now_ns + ANSWERS_APART_NS;
        self.next_answer_ns.store(after, Ordering::Relaxed);
        true
    }

    fn answered(&self, number: u64) -> usize {
        lock(&self.asked)
            .get(&number)
            .map_or(0, |asked| asked.answered)
    }
}

impl Port {
    /// Finds out what the path to a peer's device carries, of at most `link`, unless that is known. Without an answer
    /// in time nothing is learned, and the connection will show.
    pub(crate) fn find_out(
        &self,
        peer: Peer,
        local: Option<IpAddr>,
        link: Link,
        patience: Duration,
    ) {
        let longest = |link: Link| {
            link.payload_bytes
                .min(peer.payload_bytes)
                .max(link.mtu_bytes)
        };
        let wanted = longest(link);
        if !peer.is_dunlin || self.probes.is_known(peer.address, wanted) {
            return;
        }
        let way = || Route::find(local, peer.address);
        // There is nothing between a host and itself.
        let Some(route) = way().filter(|route| route.local != peer.address) else {
            return;
        };
        let Ok(number) = random_u64() else { return };
        let asked = Asked {
            peer: SocketAddr::new(peer.address, peer.port),
            lengths: Vec::new(),
            answered: 0,
        };
        lock(&self.probes.asked).insert(number, asked);
        let path = Path {
            local: route.local,
            peer,
        };
        let until = Instant::now() + patience;
        let first = longest(link.min(route.link));
        let mut payload_bytes = first;
        let found = loop {
            if let Some(found) = self.try_payload(&path, number, payload_bytes, until) {
                break found;
            }
            // A router may have informed the kernel meanwhile.
            let told = way().map_or(payload_bytes, |route| longest(link.min(route.link)));
            let shorter = SHORTER.into_iter().find(|shorter| *shorter < payload_bytes);
            match shorter.filter(|_| Instant::now() < until) {
                Some(_) if told < payload_bytes => payload_bytes = told,
                Some(shorter) => payload_bytes = shorter,
                None => break 0,
            }
        };
        lock(&self.probes.asked).remove(&number);
        let way = match found {
            0 => Way::Silent,
            found if found < first => Way::AtMost(found),
            _ => Way::Whole(wanted),
        };
        self.probes.learn(peer.address, way);
    }

    /// Probes with a payload of this length; returns the longest length that was answered.
    fn try_payload(&self, path: &Path, number: u64, bytes: usize, until: Instant) -> Option<usize> {
        let question = bytes + BESIDE_BYTES;
        if let Some(asked) = lock(&self.probes.asked).get_mut(&number) {
            asked.lengths.push(question);
        }
        for wait in WAITS {
            self.send_probe(path, QUESTION, number, question);
            let end = (Instant::now() + wait).min(until);
            loop {
                self.poll();
                let answered = self.probes.answered(number);
                if answered > 0 {
                    return Some(answered.saturating_sub(BESIDE_BYTES));
                }
                if Instant::now() >= end {
                    break;
                }
                std::thread::sleep(LOOK);
            }
        }
        None
    }

    fn send_probe(&self, path: &Path, immediate: u32, number: u64, bytes: usize) {
        let header = Header {
            service: Service::Datagram {
                queue_key: PROBE_KEY,
                source_queue_pair: PROBE_QUEUE_PAIR,
            },
            operation: Operation::SendOnly {
                immediate: Some(immediate),
            },
            solicited: false,
            acknowledge: false,
            partition_key: DEFAULT_PARTITION_KEY,
            queue_pair: PROBE_QUEUE_PAIR,
            psn: Psn::new(0),
        };
        let socket = &self.core.socket;
        with_train(|train| {
            train
                .add(socket, path, &header, bytes, |place| {
                    place.fill(0);
                    place[..size_of::<u64>()].copy_from_slice(&number.to_be_bytes());
                    Ok(())
                })
                .unwrap_or_else(|Gone| unreachable!("no region is read"));
            train.send(socket);
        });
    }

    /// Handles a packet for [`PROBE_QUEUE_PAIR`]. A probe is answered with as many bytes as it has, so sending one with
    /// a forged source gains nothing.
    #[cold]
    pub(super) fn take_probe(
        &self,
        source: &SocketAddr,
        header: &Header,
        payload: &[u8],
        icrc: bool,
    ) {
        let statistics = &self.core.socket.statistics;
        let (Service::Datagram { queue_key, .. }, Operation::SendOnly { immediate }) =
            (header.service, header.operation)
        else {
            return statistics.count(Count::UnknownQueuePair);
        };
        let (PROBE_KEY, Some(number)) = (queue_key, payload.first_chunk()) else {
            return statistics.count(Count::UnknownQueuePair);
        };
        if payload.len() > MAX_PAYLOAD_BYTES as usize + BESIDE_BYTES {
            // No probe is that long, and it may not fit into a train.
            return statistics.count(Count::Malformed);
        }
        let number = u64::from_be_bytes(*number);
        statistics.count(Count::Probe);
        match immediate {
            Some(ANSWER) => self.probes.note(number, source, payload.len()),
            Some(QUESTION) if self.probes.may_answer(now_ns()) => {
                let local = || Route::find(None, source.ip()).map(|route| route.local);
                // Only what the CRC covers contains the address of this host.
                let local = match icrc {
                    true => self.core.config.local_address.or_else(local),
                    false => Some(source.ip()),
                };
                let peer = Peer::asking(source, icrc);
                if let Some(local) = local {
                    self.send_probe(&Path { local, peer }, ANSWER, number, payload.len());
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::raw_peer::{peer, peer_that_takes, send, PATIENCE, THERE};
    use super::*;
    use crate::config::RoceConfig;
    use crate::packet::MAX_PAYLOAD_BYTES;
    use crate::RoceDevice;
    use dunlin_verbs::{Device, EndpointAddress, PeerConfirmation};
    use std::net::UdpSocket;

    /// Offset of the end of a datagram's immediate data.
    const IMMEDIATE_END: usize = 24;

    fn device() -> RoceDevice {
        RoceDevice::open(RoceConfig {
            omit_icrc: true,
            ..RoceConfig::default()
        })
        .unwrap()
    }

    /// What a device reports about a queue pair to a peer: MTU and payload.
    fn told(device: &RoceDevice, peer: &EndpointAddress) -> (u32, usize) {
        let habits = device.inner().core.habits();
        let own = EndpointAddress {
            gid: [0; 16],
            token: habits.token(MAX_PAYLOAD_BYTES as usize),
            ..*peer
        };
        let told = device.address_for(own, peer);
        let read = Peer::new(&told, &habits).unwrap();
        (told.mtu_bytes, read.payload_bytes)
    }

    /// Answers `count` probes of at most this many bytes, and returns all their lengths.
    fn hop(socket: &UdpSocket, carries: usize, count: usize) -> Vec<usize> {
        let (mut lengths, mut answered) = (Vec::new(), 0);
        let mut packet = vec![0; 1 << 16];
        while answered < count {
            let (length, source) = socket.recv_from(&mut packet).unwrap();
            lengths.push(length);
            if length <= carries {
                packet[IMMEDIATE_END - 1] = ANSWER as u8;
                socket.send_to(&packet[..length], source).unwrap();
                answered += 1;
            }
        }
        lengths
    }

    #[test]
    fn a_hop_that_carries_less_than_both_ends_is_found_out_once() {
        let (device, (socket, address)) = (device(), peer());
        assert_eq!(told(&device, &address).0, 4096);
        let asks = || device.confirm_peer(&address, PATIENCE).unwrap();
        std::thread::scope(|scope| {
            let hop = scope.spawn(|| hop(&socket, 1400, 1));
            assert_eq!(asks(), PeerConfirmation::Confirmed { user: None });
            let lengths = hop.join().unwrap();
            assert!(lengths.is_sorted_by(|a, b| a >= b), "{lengths:?}");
            assert!(
                lengths[0] > 8768 && lengths.len() > 2 * WAITS.len(),
                "{lengths:?}"
            );
        });
        assert_eq!(told(&device, &address), (1024, 1280));
        // The path is known, so no probe is sent.
        asks();
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv_from(&mut [0; 9000]).is_err());
    }

    #[test]
    fn what_one_device_has_no_use_for_is_asked_of_the_next_of_its_host() {
        let device = device();
        let asks = |(socket, address): (UdpSocket, EndpointAddress), carries: usize| {
            std::thread::scope(|scope| {
                let hop = scope.spawn(|| hop(&socket, carries, 1));
                device.confirm_peer(&address, PATIENCE).unwrap();
                hop.join().unwrap()
            });
            told(&device, &address)
        };
        let whole = told(&device, &peer().1);
        assert_eq!(asks(peer_that_takes(4096), usize::MAX), whole);
        // The hop carries less for all of them.
        assert_eq!(asks(peer(), 1400), (1024, 1280));
    }

    #[test]
    fn nothing_is_made_of_silence_and_of_answers_from_elsewhere_or_to_other_questions() {
        let (device, (socket, address)) = (device(), peer());
        let before = told(&device, &address);
        let elsewhere = UdpSocket::bind((THERE, 0)).unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut packet = vec![0; 1 << 16];
                let (length, source) = socket.recv_from(&mut packet).unwrap();
                packet[IMMEDIATE_END - 1] = ANSWER as u8;
                elsewhere.send_to(&packet[..length], source).unwrap();
                elsewhere.send_to(&packet[..30], source).unwrap();
                // From the right device, but of a length that no probe had.
                socket.send_to(&packet[..40], source).unwrap();
            });
            device
                .confirm_peer(&address, Duration::from_millis(300))
                .unwrap();
            other.join().unwrap();
        });
        assert_eq!(told(&device, &address), before);
        assert!(lock(&device.inner().probes.asked).is_empty());
        // Nor is a silent host probed again immediately.
        let mut packet = vec![0; 1 << 16];
        socket.set_nonblocking(true).unwrap();
        while socket.recv_from(&mut packet).is_ok() {}
        device.confirm_peer(&address, PATIENCE).unwrap();
        assert!(socket.recv_from(&mut packet).is_err());
    }

    #[test]
    fn a_question_is_answered_with_as_many_bytes_and_another_key_with_none() {
        let device = device();
        let port = device.inner();
        let (socket, _) = peer();
        let asks = |key: u32, bytes: usize| {
            let header = Header {
                service: Service::Datagram {
                    queue_key: key,
                    source_queue_pair: PROBE_QUEUE_PAIR,
                },
                operation: Operation::SendOnly {
                    immediate: Some(QUESTION),
                },
                solicited: false,
                acknowledge: false,
                partition_key: DEFAULT_PARTITION_KEY,
                queue_pair: PROBE_QUEUE_PAIR,
                psn: Psn::new(0),
            };
            send(&socket, &device, &header, bytes)
        };
        asks(PROBE_KEY + 1, 100);
        asks(PROBE_KEY, 4);
        // Of a length that no probe has, and too long for the answer to fit into a train.
        asks(PROBE_KEY, 65_000);
        let question = asks(PROBE_KEY, 100);
        let end = Instant::now() + PATIENCE;
        while device.count(Count::Probe) == 0 && Instant::now() < end {
            port.poll();
        }
        let mut answer = [0; 400];
        let length = socket.recv(&mut answer).unwrap();
        assert_eq!(length, question.len());
        let number = IMMEDIATE_END..IMMEDIATE_END + size_of::<u64>();
        assert_eq!(answer[number.clone()], question[number]);
        assert_eq!(answer[IMMEDIATE_END - 1], ANSWER as u8);
        assert_eq!(device.count(Count::UnknownQueuePair), 2);
        assert_eq!(device.count(Count::Malformed), 1);
    }
}
