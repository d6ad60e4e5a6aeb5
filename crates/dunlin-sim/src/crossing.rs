//! Events that go from one host or switch to another, and so possibly to another part of the cluster.

use crate::event::{Event, Ps};
use crate::packet::Packet;
use crate::world::World;

/// An event for a host or switch of another part, with its packet.
#[derive(Debug)]
pub(crate) struct Crossing {
    at: Ps,
    order: u64,
    event: Event,
    packet: Option<Packet>,
}

impl World {
    /// Sends a packet or a pause from node `by` to `node`, where it arrives at `at`.
    #[inline]
    pub(crate) fn send(&mut self, by: u16, at: Ps, node: u16, event: Event) {
        let order = self.queue.order(by, node);
        let part = self.division.of_node(node);
        if part == self.part {
            self.expect(event);
            self.queue.insert(at, order, event);
            return;
        }
        let packet = match event {
            Event::Switch { packet, .. } | Event::Arrive { packet, .. } => {
                let moved = std::mem::take(&mut self.packets[packet]);
                self.packets.give_back(packet);
                Some(moved)
            }
            _ => None,
        };
        self.outbox[part].push(Crossing {
            at,
            order,
            event,
            packet,
        });
    }

    /// Inserts an event that another part has sent.
    ///
    /// # Panics
    /// When the event should have happened before: parts have run further ahead than cables allow.
    pub(crate) fn take_in(&mut self, crossing: Crossing) {
        let Crossing {
            at,
            order,
            mut event,
            packet,
        } = crossing;
        assert!(at >= self.now, "a packet of the past");
        if let Some(moved) = packet {
            let place = self.packets.take();
            self.packets[place] = moved;
            if let Event::Switch { packet, .. } | Event::Arrive { packet, .. } = &mut event {
                *packet = place;
            }
        }
        self.expect(event);
        self.queue.insert(at, order, event);
    }

    /// Accounts for a packet that is on its way to a buffer of this part.
    #[inline]
    fn expect(&mut self, event: Event) {
        match event {
            Event::Switch {
                switch,
                port,
                packet,
            } => self.expect_at_switch(switch, port, packet),
            Event::Arrive { host, packet } => {
                let bytes = self.packets[packet].wire_bytes;
                let nic = &mut self.hosts[usize::from(host)].nic;
                nic.headroom.add(bytes, &mut self.tight);
            }
            _ => {}
        }
    }
}
