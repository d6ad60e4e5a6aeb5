//! How UC handles verbs that lose a packet, and verbs that are late: raw verbs between two hosts.

use std::time::Duration;

use dunlin_sim::{Cluster, Fault, FaultRule, RuleGuard};
use dunlin_verbs::{
    Completion, CompletionOpcode, CompletionQueue, Operation, Payload, QueuePair, QueuePairState,
    ReceiveRequest, Region, Segment, SendFlags, SendRequest, Transport,
};

use super::ping_pong::{two_ends, Side};
use super::Cable;

/// Time until everything has arrived.
const SETTLED_NS: u64 = 1_000_000;
/// Number of RECEIVEs posted.
const RECEIVES: usize = 4;
/// Initial contents of the receiver's memory.
const BEFORE: u8 = 0xee;

/// Whether a verb of UC that loses one packet is dropped as a whole, its sender is not notified, and the next one
/// arrives in the RECEIVE that it would have used. The lost packet is the first one that arrives at least `after` the
/// verb was posted; `None` when none did.
///
/// # Panics
/// When a device refuses.
pub fn loses_whole_verb(cluster: &Cluster, bytes: usize, after: Duration) -> Option<bool> {
    let mut ends = Ends::new(cluster, bytes);
    ends.send(1);
    cluster.run_for(u64::try_from(after.as_nanos()).expect("a short time"));
    let drops = |cluster: &Cluster| -> u64 {
        let hosts = cluster.hosts();
        hosts
            .iter()
            .map(|&host| cluster.counters(host).fault_drops)
            .sum()
    };
    let before = drops(cluster);
    let rule = ends.rule(cluster, Fault::Drop, 1);
    cluster.run_for(SETTLED_NS);
    drop(rule);
    if drops(cluster) == before {
        return None;
    }
    let nothing = ends.received().is_empty();
    ends.send(2);
    cluster.run_for(SETTLED_NS);
    let sent = ends.sent();
    let received = ends.received();
    let next = received.len() == 1 && received[0].id == 0 && ends.is_filled(0, 2);
    let ready = ends.sides[0].pair.state() == QueuePairState::ReadyToSend
        && ends.sides[1].pair.state() == QueuePairState::ReadyToSend;
    Some(nothing && sent == 2 && next && ready)
}

/// Whether a WRITE with immediate data that arrives after a SEND posted behind it, on the same queue pair of UC, is
/// dropped: no completion, no RECEIVE taken, no byte written.
///
/// # Panics
/// When a device refuses.
pub fn drops_late_write(cluster: &Cluster, bytes: usize) -> bool {
    let mut ends = Ends::new(cluster, bytes);
    let late = Fault::Delay {
        least_ns: 100_000,
        most_ns: 100_000,
    };
    let rule = ends.rule(cluster, late, u64::MAX);
    ends.write(1);
    // By then it is on its way.
    cluster.run_for(50_000);
    drop(rule);
    ends.send(2);
    cluster.run_for(SETTLED_NS);
    let received = ends.received();
    let only_the_send = received.len() == 1
        && received[0].opcode == CompletionOpcode::Receive
        && received[0].id == 0;
    only_the_send && ends.is_filled(0, 2) && ends.is_filled(RECEIVES, BEFORE)
}

/// A sender and a receiver, whose memory has a slot for each RECEIVE and one for WRITEs.
struct Ends {
    sides: [Side; 2],
    bytes: usize,
    hosts: [dunlin_sim::HostId; 2],
}

impl Ends {
    fn new(cluster: &Cluster, bytes: usize) -> Self {
        let hosts = cluster.hosts();
        let cable = Cable {
            transport: Transport::UnreliableConnection,
            sends: 16,
            receives: RECEIVES,
            inline_bytes: 0,
        };
        let mut sides = two_ends(cluster, cable, bytes * (RECEIVES + 1));
        let receiver = &mut sides[1];
        receiver
            .region
            .memory()
            .write(0, &vec![BEFORE; bytes * (RECEIVES + 1)]);
        for slot in 0..RECEIVES {
            let segment = Segment {
                region: &receiver.region,
                offset: slot * bytes,
                length: bytes,
            };
            let request = ReceiveRequest {
                id: slot as u64,
                segments: &[segment],
            };
            receiver.pair.post_receive(&[request]).expect("room");
        }
        Self {
            sides,
            bytes,
            hosts: [hosts[0], hosts[1]],
        }
    }

    fn rule(&self, cluster: &Cluster, fault: Fault, packets: u64) -> RuleGuard {
        let [from, to] = self.hosts;
        cluster.fault(
            FaultRule::new(fault, 1.0)
                .between(from, to)
                .at_most(packets),
        )
    }

    fn send(&mut self, value: u8) {
        self.post(value, Operation::Send { immediate: None });
    }

    fn write(&mut self, value: u8) {
        let remote = self.sides[1]
            .region
            .remote()
            .plus((RECEIVES * self.bytes) as u64);
        self.post(
            value,
            Operation::Write {
                remote,
                immediate: Some(value.into()),
            },
        );
    }

    /// Posts a verb with this value. Each value has memory of its own: bytes do not change while they are in flight.
    fn post(&mut self, value: u8, operation: Operation) {
        let Side { pair, region, .. } = &mut self.sides[0];
        let offset = usize::from(value) * self.bytes;
        region.memory().write(offset, &vec![value; self.bytes]);
        let segments = [Segment {
            region: &*region,
            offset,
            length: self.bytes,
        }];
        let payload = Payload::Segments(&segments);
        let request = SendRequest::new(value.into(), operation, payload, SendFlags::SIGNALED);
        pair.post_send(&[request]).expect("room");
    }

    fn polled(&mut self, side: usize) -> Vec<Completion> {
        let mut some = [Completion::EMPTY; 16];
        let queue = &mut self.sides[side].completions;
        let count = queue.poll(&mut some).expect("no overflow");
        some[..count].to_vec()
    }

    /// Takes completions of the sender, all of which must be successful.
    fn sent(&mut self) -> usize {
        let all = self.polled(0);
        all.iter()
            .filter(|completion| completion.is_success())
            .count()
    }

    fn received(&mut self) -> Vec<Completion> {
        self.polled(1)
    }

    /// Whether all bytes of a slot of the receiver have this value.
    fn is_filled(&self, slot: usize, value: u8) -> bool {
        let mut found = vec![0; self.bytes];
        self.sides[1]
            .region
            .memory()
            .read(slot * self.bytes, &mut found);
        found.iter().all(|&byte| byte == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_sim::{HostParameters, NicParameters, SwitchParameters};

    /// With another NIC than the figure.
    fn cluster() -> Cluster {
        let (host, nic) = (HostParameters::xeon_e5_v4(), NicParameters::connectx_3());
        Cluster::star(1, 2, &host, &nic, &SwitchParameters::sx1012())
    }

    #[test]
    fn a_verb_that_loses_a_packet_is_dropped_whole() {
        let bytes = 16 * NicParameters::connectx_3().mtu_bytes as usize;
        // Its first packet, and one behind it.
        for after_ns in [0, 2_000] {
            let after = Duration::from_nanos(after_ns);
            assert_eq!(loses_whole_verb(&cluster(), bytes, after), Some(true));
        }
        let after = Duration::from_millis(1);
        assert_eq!(loses_whole_verb(&cluster(), bytes, after), None);
    }

    #[test]
    fn a_late_write_is_dropped() {
        assert!(drops_late_write(&cluster(), 100));
        assert!(drops_late_write(&cluster(), 10_000));
    }
}
