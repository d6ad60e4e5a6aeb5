//! Which packets of RC request an acknowledgement.
//!
//! The drivers tell NICs to request one at least once in 256 packets (`log_ack_req_freq` of mlx5, `ack_req_freq` of
//! mlx4), and a signaled request needs one. Packets sent after the last of these are not acknowledged until the
//! transport timer fires.

use dunlin_verbs::{SendFlags, Transport};

use crate::world::World;

/// Number of retransmitted packets between two that request an acknowledgement: the sender wants to know its progress.
const CAREFUL: u64 = 32;

impl World {
    /// Lets the next packet to be sent request an acknowledgement, if one is due.
    pub(super) fn ask(&mut self, qp: u32, packet: u32) {
        let pair = &mut self.pairs[qp as usize];
        if pair.transport != Transport::ReliableConnection {
            return;
        }
        let most = self.hosts[usize::from(pair.host)]
            .nic
            .parameters
            .ack_request_packets as u64;
        let Some(element) = pair.element(pair.cursor) else {
            return;
        };
        let fetches = element.verb.fetches();
        let signaled = element.flags.contains(SendFlags::SIGNALED);
        let end = element.first_psn + u64::from(element.packets);
        let most = if pair.careful {
            most.min(CAREFUL)
        } else {
            most
        };
        let window = self.window_of(qp);
        // With a window: acknowledgements let more packets out, so the last packet of a full window requests one, and
        // some before it.
        let most = window.map_or(most, |packets| most.min((packets / 4).max(1)));
        let pair = &mut self.pairs[qp as usize];
        let fills = window.is_some_and(|packets| pair.in_flight() + 1 >= packets);
        pair.unasked += 1;
        let packet = &mut self.packets[packet];
        packet.acknowledge =
            fetches || packet.last && (signaled || pair.careful) || pair.unasked >= most || fills;
        if packet.acknowledge {
            pair.unasked = 0;
            pair.asked = if fetches { end } else { packet.psn + 1 };
        }
    }

    /// The timer has fired: if none of the unacknowledged packets requested an acknowledgement, the last of them is
    /// sent again and requests one. Returns false when one had.
    pub(super) fn probe(&mut self, qp: u32) -> bool {
        let pair = &mut self.pairs[qp as usize];
        let oldest = pair
            .sends
            .front()
            .map_or(0, |e| e.first_psn + u64::from(e.answered));
        if pair.asked > oldest {
            return false;
        }
        let Some(last) = pair.last_sent() else {
            return false;
        };
        pair.go_back(last);
        true
    }
}
