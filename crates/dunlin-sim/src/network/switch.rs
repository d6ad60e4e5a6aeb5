//! A switch: output queues for each priority, control packets before data, a shared buffer, random early marking at
//! egress, pauses by ingress port.

use super::topology::Uplink;
use crate::counters::SwitchCounters;
use crate::event::{switch_node as node, Event, PauseTarget, Ps};
use crate::headroom::Headroom;
use crate::parameters::SwitchParameters;
use crate::priority::{self, Queues, Turns, PRIORITIES};
use crate::random::Random;
use crate::world::World;

/// What a port is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Host(u16),
    /// A switch, and the port at its end of the cable.
    Switch(u16, u16),
}

/// A port with its output queues and an account of what came in by it.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) link: Link,
    /// Picoseconds per byte.
    byte: f64,
    free_at: Ps,
    control: Queues<u32>,
    data: Queues<u32>,
    turns: Turns,
    /// Queued bytes of each priority, and of all.
    bytes: [u64; PRIORITIES],
    pub(crate) queued_bytes: u64,
    /// Paused priorities, a bit each.
    paused: u8,
    wakes: bool,
    /// Bytes in the buffer that arrived at this port, of each priority.
    ingress_bytes: [u64; PRIORITIES],
    pause_sent: u8,
    headroom: Headroom,
}

impl Port {
    pub(crate) fn new(link: Link, gbit_s: f64, turns: Turns) -> Self {
        Self {
            link,
            byte: 8_000.0 / gbit_s,
            free_at: 0,
            control: Queues::default(),
            data: Queues::default(),
            turns,
            bytes: [0; PRIORITIES],
            queued_bytes: 0,
            paused: 0,
            wakes: false,
            ingress_bytes: [0; PRIORITIES],
            pause_sent: 0,
            headroom: Headroom::new(None),
        }
    }

    /// Priorities that have packets and may send them, a bit each.
    fn ready(&self) -> u8 {
        (self.control.waiting() | self.data.waiting()) & !self.paused
    }

    /// Takes the next packet: control before data, and data by priority.
    fn take(&mut self) -> Option<u32> {
        let control = self.control.waiting() & !self.paused;
        if control != 0 {
            return self.control.pop(7 - control.leading_zeros() as u8);
        }
        let priority = self.turns.next(self.data.waiting() & !self.paused)?;
        self.data.pop(priority)
    }
}

/// A switch.
#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) parameters: SwitchParameters,
    pub(crate) ports: Vec<Port>,
    pub(crate) buffer_bytes: u64,
    pub(crate) counters: SwitchCounters,
    pub(crate) random: Random,
    /// Seed of the hash that selects one of several equal paths for a flow.
    pub(crate) salt: u64,
}

impl Switch {
    /// Adds a port and returns its number.
    pub(crate) fn add_port(&mut self, link: Link, gbit_s: f64) -> u16 {
        let turns = self.parameters.turns();
        self.ports.push(Port::new(link, gbit_s, turns));
        (self.ports.len() - 1) as u16
    }

    /// Whether a packet that leaves `behind` bytes in its queue is marked. Switches decide when a packet leaves, not
    /// when it arrives: the mark describes the queue as it is then, and is only as old as the way to the receiver,
    /// however long the packet waited before.
    fn marks(&mut self, behind: u64) -> bool {
        let p = &self.parameters;
        let (least, most) = (p.ecn_min_bytes, p.ecn_max_bytes);
        if least <= 0.0 || behind as f64 <= least {
            return false;
        }
        let over = (behind as f64 - least) / (most - least).max(1.0);
        let probability = over * p.ecn_probability;
        over >= 1.0 || self.random.chance(probability)
    }

    /// Tracks the headroom of buffers that may pause a sender of another part.
    pub(crate) fn watch(&mut self, is_here: impl Fn(u16) -> bool) {
        if self.parameters.lossless == 0.0 {
            return;
        }
        let level = self.parameters.pause_bytes as u64;
        for port in &mut self.ports {
            let sender = match port.link {
                Link::Host(host) => host,
                Link::Switch(switch, _) => node(switch),
            };
            port.headroom = Headroom::new((!is_here(sender)).then_some(level));
        }
    }
}

impl World {
    /// Sends a packet from its NIC to the first switch.
    pub(crate) fn enter_network(&mut self, packet: u32, at: Ps) {
        let from = self.packets[packet].from;
        let Uplink {
            switch,
            port,
            propagation,
        } = self.network.paths.uplinks[usize::from(from)];
        let event = Event::Switch {
            switch,
            port,
            packet,
        };
        self.send(from, at + propagation, node(switch), event);
    }

    /// The head of a packet is at a switch. If the next cable is faster, the packet waits until its end cannot be late.
    pub(crate) fn switch_event(&mut self, number: u16, ingress: u16, packet: u32) {
        let entry = &self.packets[packet];
        let Some(egress) = self.network.route(number, entry.to, entry.flow()) else {
            return self.leave_switch(number, ingress, packet);
        };
        let ports = &self.network.switches[usize::from(number)].ports;
        let slower = ports[usize::from(ingress)].byte - ports[usize::from(egress)].byte;
        let gap = (f64::from(entry.wire_bytes) * slower) as Ps;
        if gap == 0 {
            return self.pass_on(number, (ingress, egress), packet);
        }
        let event = Event::Gathered {
            switch: number,
            port: ingress,
            packet,
        };
        self.queue.push(self.now + gap, node(number), event);
    }

    /// Enough of a packet has arrived at a switch.
    pub(crate) fn gathered_event(&mut self, number: u16, ingress: u16, packet: u32) {
        let entry = &self.packets[packet];
        match self.network.route(number, entry.to, entry.flow()) {
            Some(egress) => self.pass_on(number, (ingress, egress), packet),
            None => self.leave_switch(number, ingress, packet),
        }
    }

    /// Forwards a packet by a free port, or queues it.
    fn pass_on(&mut self, number: u16, (ingress, egress): (u16, u16), packet: u32) {
        let entry = &self.packets[packet];
        let (bytes, control) = (u64::from(entry.wire_bytes), entry.is_control());
        let priority = entry.priority;
        let (place, bit) = (usize::from(priority), priority::bit(priority));
        let now = self.now;
        let switch = &mut self.network.switches[usize::from(number)];
        let port = &switch.ports[usize::from(egress)];
        if port.free_at <= now && port.queued_bytes == 0 && port.paused & bit == 0 {
            switch.ports[usize::from(ingress)]
                .headroom
                .remove(entry.wire_bytes, &mut self.tight);
            return self.forward(number, egress, packet);
        }
        let p = &switch.parameters;
        let waiting = port.bytes[place];
        let (size, lossless) = (p.buffer_bytes as u64, p.lossless_priorities() & bit != 0);
        let free = size.saturating_sub(switch.buffer_bytes);
        let share = (free as f64 * p.buffer_alpha) as u64;
        if bytes > free || !lossless && waiting + bytes > share {
            switch.counters.drops += 1;
            return self.leave_switch(number, ingress, packet);
        }
        self.packets[packet].ingress = ingress;
        switch.buffer_bytes += bytes;
        switch.counters.buffer_bytes_max =
            switch.counters.buffer_bytes_max.max(switch.buffer_bytes);
        let port = &mut switch.ports[usize::from(egress)];
        port.queued_bytes += bytes;
        port.bytes[place] += bytes;
        let queues = match control {
            true => &mut port.control,
            false => &mut port.data,
        };
        queues.push(priority, packet);
        if port.paused & bit == 0 {
            self.wake_port(number, egress);
        }
        self.observe_port(number, egress);
        let switch = &mut self.network.switches[usize::from(number)];
        let source = &mut switch.ports[usize::from(ingress)];
        source.ingress_bytes[place] += bytes;
        if lossless
            && source.pause_sent & bit == 0
            && source.ingress_bytes[place] as f64 > switch.parameters.pause_bytes
        {
            source.pause_sent |= bit;
            source.headroom.pause(true, &mut self.tight);
            switch.counters.pauses += 1;
            self.pause_link(number, ingress, priority, true);
        }
    }

    /// Ends a packet's stay at this switch without forwarding it.
    fn leave_switch(&mut self, number: u16, ingress: u16, packet: u32) {
        let switch = &mut self.network.switches[usize::from(number)];
        switch.ports[usize::from(ingress)]
            .headroom
            .remove(self.packets[packet].wire_bytes, &mut self.tight);
        self.packets.give_back(packet);
    }

    /// Accounts for a packet on its way to a switch.
    pub(crate) fn expect_at_switch(&mut self, number: u16, ingress: u16, packet: u32) {
        let switch = &mut self.network.switches[usize::from(number)];
        switch.ports[usize::from(ingress)]
            .headroom
            .add(self.packets[packet].wire_bytes, &mut self.tight);
    }

    /// A port is free: sends the next packet.
    pub(crate) fn port_event(&mut self, number: u16, egress: u16) {
        let switch = &mut self.network.switches[usize::from(number)];
        let port = &mut switch.ports[usize::from(egress)];
        port.wakes = false;
        let Some(packet) = port.take() else {
            return;
        };
        let entry = &mut self.packets[packet];
        let (bytes, ingress, priority) =
            (u64::from(entry.wire_bytes), entry.ingress, entry.priority);
        let (place, bit) = (usize::from(priority), priority::bit(priority));
        if !entry.is_control() {
            port.turns.serve(priority, bytes);
        }
        port.queued_bytes -= bytes;
        port.bytes[place] -= bytes;
        let behind = port.bytes[place];
        let marked = switch.parameters.ecn_priorities as u8 & bit != 0;
        if !entry.is_control() && marked && switch.marks(behind) {
            switch.counters.marks += 1;
            entry.congested = true;
        }
        switch.buffer_bytes -= bytes;
        let resume = switch.parameters.resume_bytes;
        let source = &mut switch.ports[usize::from(ingress)];
        source.ingress_bytes[place] -= bytes;
        source.headroom.remove(bytes as u32, &mut self.tight);
        if source.pause_sent & bit != 0 && (source.ingress_bytes[place] as f64) < resume {
            source.pause_sent &= !bit;
            let pausing = source.pause_sent != 0;
            source.headroom.pause(pausing, &mut self.tight);
            self.pause_link(number, ingress, priority, false);
        }
        self.forward(number, egress, packet);
        self.observe_port(number, egress);
        let port = &mut self.network.switches[usize::from(number)].ports[usize::from(egress)];
        if port.ready() != 0 {
            self.wake_port(number, egress);
        }
    }

    /// Schedules a look at the queues of a port as soon as it is free.
    fn wake_port(&mut self, number: u16, egress: u16) {
        let port = &mut self.network.switches[usize::from(number)].ports[usize::from(egress)];
        if port.wakes {
            return;
        }
        port.wakes = true;
        let at = port.free_at.max(self.now);
        let event = Event::Port {
            switch: number,
            port: egress,
        };
        self.queue.push(at, node(number), event);
    }

    /// Sends a packet out of a free port. Switches cut through: what is scheduled is the arrival of the head, and the
    /// end follows by the time of the slowest cable so far. The last hop delivers whole packets.
    fn forward(&mut self, number: u16, egress: u16, packet: u32) {
        let bytes = self.packets[packet].wire_bytes;
        let switch = &mut self.network.switches[usize::from(number)];
        switch.counters.forwarded += 1;
        let delay = switch.parameters.latency + switch.parameters.propagation;
        let port = &mut switch.ports[usize::from(egress)];
        let time = (f64::from(bytes) * port.byte) as Ps;
        port.free_at = self.now + time;
        match port.link {
            Link::Host(host) => {
                let event = Event::Arrive { host, packet };
                self.send(node(number), self.now + delay + time, host, event);
            }
            Link::Switch(switch, port) => {
                let event = Event::Switch {
                    switch,
                    port,
                    packet,
                };
                self.send(node(number), self.now + delay, node(switch), event);
            }
        }
    }

    /// Tells the sender at the other end of a port's cable to stop or resume a priority.
    fn pause_link(&mut self, number: u16, port: u16, priority: u8, stop: bool) {
        let switch = &self.network.switches[usize::from(number)];
        let at = self.now + switch.parameters.propagation;
        let (target, to) = match switch.ports[usize::from(port)].link {
            Link::Host(host) => (PauseTarget::Nic(host), host),
            Link::Switch(other, port) => (PauseTarget::Port(other, port), node(other)),
        };
        let event = Event::Pause {
            target,
            priority,
            stop,
        };
        self.send(node(number), at, to, event);
    }

    /// A NIC tells its switch to stop or resume a priority.
    pub(crate) fn pause_upstream(&mut self, host: u16, priority: u8, stop: bool) {
        let uplink = self.network.paths.uplinks[usize::from(host)];
        let (switch, at) = (uplink.switch, self.now + uplink.propagation);
        let target = PauseTarget::Port(switch, uplink.port);
        let event = Event::Pause {
            target,
            priority,
            stop,
        };
        self.send(host, at, node(switch), event);
    }

    /// A pause, or its end, has arrived.
    pub(crate) fn pause_event(&mut self, target: PauseTarget, priority: u8, stop: bool) {
        let bit = priority::bit(priority);
        let change = |paused: &mut u8| match stop {
            true => *paused |= bit,
            false => *paused &= !bit,
        };
        match target {
            PauseTarget::Nic(host) => {
                let nic = &mut self.hosts[usize::from(host)].nic;
                change(&mut nic.paused);
                nic.counters.pauses_received += u64::from(stop);
                let engine = nic.sender();
                if !stop {
                    self.kick(host, engine);
                }
            }
            PauseTarget::Port(number, egress) => {
                let port =
                    &mut self.network.switches[usize::from(number)].ports[usize::from(egress)];
                change(&mut port.paused);
                if !stop && port.ready() != 0 {
                    self.wake_port(number, egress);
                }
            }
        }
    }
}
