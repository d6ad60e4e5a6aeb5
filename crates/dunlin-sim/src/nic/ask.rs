//! Which packets of RC ask for an acknowledgement.
//!
//! The drivers tell NICs to ask at least once in 256 packets (`log_ack_req_freq` of mlx5, `ack_req_freq` of mlx4), and
//! a completion that was asked for needs one. Of what is sent behind the last of these nothing is heard, until the
//! transport timer looks.

use dunlin_verbs::{SendFlags, Transport};

use crate::world::World;

/// Packets of what is sent again between two that ask: how far it got is what the sender wants to know.
const CAREFUL: u64 = 32;

impl World {
    /// Lets the packet that is sent next ask for an acknowledgement, if it is its turn.
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
        // By window: what is heard of lets more out, so the last packet of a full window asks, and some before it.
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

    /// The timer has fired: when none of what is not acknowledged asked to be, the last of it is sent again and asks.
    /// False when one had.
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
