//! Ports that other devices' datagram queue pairs have at ours: which of them get one, and when it ends.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use dunlin_verbs::Transport;

use super::{receives, say_port, Answer, Refused, Session};
use crate::core::{lock, Core};
use crate::port::{Geometry, Inbound, PortMap};
use crate::queue_pair::Shared;

/// A port for datagrams that this peer has to a queue pair of ours. It ends when that queue pair releases it; this
/// entry only determines whom to inform.
#[derive(Debug)]
pub(super) struct DatagramPort {
    pub(super) ours: u32,
    incarnation: u32,
    pub(super) its: u32,
    /// The number of its request.
    pub(super) request: u32,
    pub(super) port: Weak<PortMap>,
}

impl DatagramPort {
    /// Whether only the port has ended, as that of a sender that left or violated the protocol does, while its queue
    /// pair `pair` continues. A reset changes the incarnation first.
    fn has_ended(&self, pair: &Shared) -> bool {
        self.ours == pair.number
            && self.port.strong_count() == 0
            && self.incarnation == pair.incarnation()
    }
}

impl Session {
    /// The number of senders below which a queue pair accepts another one of this session: the last quarter of all
    /// places is reserved for sessions that have less than a quarter, so that no device locks out all others.
    fn most_senders(&self, most: usize, target: u32) -> usize {
        let quarter = most / 4;
        let its_own = self.datagrams.iter().filter(|port| port.ours == target);
        match its_own.count() < quarter {
            true => most,
            false => most - quarter,
        }
    }

    pub(super) fn attach_datagram(
        &mut self,
        core: &Core,
        refused: &mut Refused,
        (request, requester): (u32, u32),
        target: u32,
        queue_key: u32,
    ) -> Option<Answer> {
        let pair = core.queue_pair(target)?;
        if pair.transport != Transport::UnreliableDatagram
            || pair.queue_key != queue_key
            || !receives(pair.state())
        {
            return None;
        }
        // A queue pair that asks again has lost its port. The same holds for those that are gone, here and in other
        // sessions.
        self.datagrams.retain(|sender| {
            let again = (sender.ours, sender.its) == (target, requester);
            if again {
                close_datagram_port(core, sender);
            }
            !again
        });
        pair.receive
            .enter(|receive| receive.remove_all(&pair, Inbound::is_over));
        self.datagrams.retain(|sender| !sender.has_ended(&pair));
        let geometry = Geometry {
            lengths: 1,
            data_bytes: core.config.datagram_port_bytes as u32,
            shared_receive: true,
        };
        let incarnation = pair.incarnation();
        let (file, port) = PortMap::create(geometry).ok()?;
        let port = Arc::new(port);
        let most = self.most_senders(core.config.max_datagram_senders, target);
        let added = pair.receive.enter(|receive| {
            if receive.inbound.len() >= most {
                return false;
            }
            receive
                .inbound
                .push(Inbound::new(Arc::clone(&port), requester));
            true
        });
        if !added {
            if let Some(count) = refused.senders.count(Instant::now()) {
                tracing::warn!(queue_pair = target, count, "too many senders of datagrams");
            }
            return None;
        }
        let mut link = lock(&pair.link);
        if pair.incarnation() != incarnation {
            // It was reset meanwhile, and its earlier ports with it.
            drop(link);
            pair.receive.enter(|receive| {
                receive.remove_all(&pair, |inbound| Arc::ptr_eq(&inbound.port, &port));
            });
            return None;
        }
        port.state().store(pair.state() as u32, Ordering::SeqCst);
        link.ports.push(Arc::clone(&port));
        drop(link);
        pair.receive_cq.arm_port(&port);
        self.datagrams.push(DatagramPort {
            ours: target,
            incarnation,
            its: requester,
            request,
            port: Arc::downgrade(&port),
        });
        say_port(core, &mut self.admitted, &pair, request, &file, geometry)
    }
}

/// Removes a sender's port from a UD queue pair.
pub(super) fn close_datagram_port(core: &Core, sender: &DatagramPort) {
    let (Some(pair), Some(port)) = (core.queue_pair(sender.ours), sender.port.upgrade()) else {
        return;
    };
    pair.receive.enter(|receive| {
        receive.remove_all(&pair, |inbound| Arc::ptr_eq(&inbound.port, &port));
    });
}
