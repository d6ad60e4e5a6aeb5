//! A trace of a simulated run for Perfetto: hosts and switches as processes; cores, engines, wires and PCIe as tracks
//! of slices; queues and caches as counters.

mod names;
mod perfetto;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::ops::Range;

use dunlin_sim::{Activity, Busy, Observer, Part, SeenNic, SwitchId};

use perfetto::{
    CounterDescriptor, EventName, File, InternedData, ProcessDescriptor, TracePacket,
    TrackDescriptor, TrackEvent, BYTES, COUNT, COUNTER, SLICE_BEGIN, SLICE_END,
};

use crate::commands::Failure;

/// Processes of switches are numbered from here; those of hosts from 1.
const FIRST_SWITCH: u64 = 1 << 16;
/// A track's number is that of its process and, below these bits, its own.
const TRACK_BITS: u32 = 32;
const PICOSECONDS_IN_NS: u64 = 1_000;

/// Limits of what is recorded.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Nanoseconds since time zero.
    pub window_ns: Range<u64>,
    /// Most slices and values of counters.
    pub events: u64,
}

/// What a track of a process shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    /// A part of a host; of a core, one of its threads.
    Part(Part, usize),
    /// A counter, by its place in the list of those of a NIC.
    Counter(usize),
    /// A port of a switch.
    Port(u16),
}

/// A slice that may go on: threads with a stack run in many short pieces.
#[derive(Clone, Debug)]
struct Slice {
    from_ps: u64,
    until_ps: u64,
    name: u64,
}

/// Writes a trace while it observes.
#[derive(Debug)]
pub struct Recorder<W> {
    file: File<W>,
    bounds: Bounds,
    hosts: Vec<String>,
    zero_ps: u64,
    /// Tracks that were described, by process.
    tracks: BTreeMap<(u64, Shown), u64>,
    processes: BTreeMap<u64, u64>,
    names: HashMap<String, u64>,
    /// Slices of threads that may go on, by track.
    open: BTreeMap<u64, Slice>,
    /// What counters show, by track.
    values: HashMap<u64, u64>,
    taken: u64,
    left_out: u64,
    failed: Option<io::Error>,
}

impl<W: Write> Recorder<W> {
    /// Of hosts with these names.
    pub fn new(output: W, hosts: Vec<String>, bounds: Bounds) -> Self {
        Self {
            file: File::new(output),
            bounds,
            hosts,
            zero_ps: 0,
            tracks: BTreeMap::new(),
            processes: BTreeMap::new(),
            names: HashMap::new(),
            open: BTreeMap::new(),
            values: HashMap::new(),
            taken: 0,
            left_out: 0,
            failed: None,
        }
    }

    /// Ends the file; gives how many slices and values are in it, and how many the bound has left out.
    ///
    /// # Errors
    /// The first of what the system said of writing.
    pub fn end(&mut self) -> Result<(u64, u64), Failure> {
        for (track, slice) in std::mem::take(&mut self.open) {
            self.write_slice(track, &slice);
        }
        let ended = match self.failed.take() {
            Some(error) => Err(error),
            None => self.file.flush(),
        };
        ended
            .map(|()| (self.taken, self.left_out))
            .map_err(|error| Failure::new(format!("cannot write the trace: {error}")))
    }

    fn add(&mut self, packet: TracePacket) {
        if self.failed.is_none() {
            self.failed = self.file.add(packet).err();
        }
    }

    /// Nanoseconds since time zero.
    fn since(&self, at_ps: u64) -> u64 {
        at_ps.saturating_sub(self.zero_ps) / PICOSECONDS_IN_NS
    }

    /// Whether one more event may be written.
    fn takes(&mut self) -> bool {
        let takes = self.taken < self.bounds.events;
        match takes {
            true => self.taken += 1,
            false => self.left_out += 1,
        }
        takes
    }

    /// The process of a host or a switch, which is described when it is met first.
    fn process(&mut self, number: u64, name: impl FnOnce(&Self) -> String) -> u64 {
        if let Some(&uuid) = self.processes.get(&number) {
            return uuid;
        }
        let uuid = number << TRACK_BITS;
        self.processes.insert(number, uuid);
        let process = ProcessDescriptor {
            pid: number as i32,
            name: name(self),
        };
        self.add(TracePacket {
            track: Some(TrackDescriptor {
                uuid,
                process: Some(process),
                ..TrackDescriptor::default()
            }),
            ..TracePacket::default()
        });
        uuid
    }

    /// The track of something of a host.
    fn track_of_host(&mut self, host: usize, shown: Shown) -> u64 {
        let name = |this: &Self| match this.hosts.get(host) {
            Some(name) => name.clone(),
            None => format!("host {host}"),
        };
        let process = self.process(host as u64 + 1, name);
        self.track(process, shown)
    }

    fn track(&mut self, process: u64, shown: Shown) -> u64 {
        if let Some(&uuid) = self.tracks.get(&(process, shown)) {
            return uuid;
        }
        let uuid = process + self.tracks.len() as u64 + 1;
        self.tracks.insert((process, shown), uuid);
        let (name, unit) = match shown {
            Shown::Part(part, _) => (names::part(part), None),
            Shown::Counter(place) => (names::NIC_COUNTERS[place].0.to_owned(), Some(COUNT)),
            Shown::Port(port) => (format!("port {port}: bytes that wait"), Some(BYTES)),
        };
        self.add(TracePacket {
            track: Some(TrackDescriptor {
                uuid,
                name: Some(name),
                parent: Some(process),
                counter: unit.map(|unit| CounterDescriptor { unit }),
                process: None,
            }),
            ..TracePacket::default()
        });
        uuid
    }

    /// The number of a slice's name, which is written when it is met first.
    fn name(&mut self, name: &str) -> u64 {
        if let Some(&number) = self.names.get(name) {
            return number;
        }
        let number = self.names.len() as u64 + 1;
        self.names.insert(name.to_owned(), number);
        let name = EventName {
            number,
            name: name.to_owned(),
        };
        self.add(TracePacket {
            interned: Some(InternedData { names: vec![name] }),
            ..TracePacket::default()
        });
        number
    }

    fn write_slice(&mut self, track: u64, slice: &Slice) {
        let from = self.since(slice.from_ps);
        if !self.bounds.window_ns.contains(&from) || !self.takes() {
            return;
        }
        let until = self.since(slice.until_ps);
        let ends = [
            (from, SLICE_BEGIN, Some(slice.name)),
            (until, SLICE_END, None),
        ];
        for (at, kind, name) in ends {
            let event = TrackEvent {
                kind,
                name,
                track,
                value: None,
            };
            self.add(TracePacket {
                timestamp: Some(at),
                event: Some(event),
                ..TracePacket::default()
            });
        }
    }

    /// Shows a counter where it has changed.
    fn count(&mut self, at_ps: u64, track: u64, value: u64) {
        let at = self.since(at_ps);
        if self.values.get(&track) == Some(&value) || !self.bounds.window_ns.contains(&at) {
            return;
        }
        self.values.insert(track, value);
        if !self.takes() {
            return;
        }
        let event = TrackEvent {
            kind: COUNTER,
            name: None,
            track,
            value: Some(value as i64),
        };
        self.add(TracePacket {
            timestamp: Some(at),
            event: Some(event),
            ..TracePacket::default()
        });
    }
}

impl<W: Write + Send> Observer for Recorder<W> {
    fn begin(&mut self, now_ps: u64) {
        self.zero_ps = now_ps;
    }

    fn busy(&mut self, busy: &Busy<'_>) {
        if busy.from_ps == busy.until_ps {
            return;
        }
        let thread = match busy.activity {
            Activity::Thread { thread, .. } => thread.number(),
            _ => 0,
        };
        let track = self.track_of_host(busy.host.number(), Shown::Part(busy.part, thread));
        let name = self.name(&names::activity(busy.activity));
        let slice = Slice {
            from_ps: busy.from_ps,
            until_ps: busy.until_ps,
            name,
        };
        if !matches!(busy.part, Part::Core(_)) {
            return self.write_slice(track, &slice);
        }
        match self.open.get_mut(&track) {
            Some(open) if slice.from_ps <= open.until_ps => open.until_ps = slice.until_ps,
            _ => {
                if let Some(before) = self.open.insert(track, slice) {
                    self.write_slice(track, &before);
                }
            }
        }
    }

    fn nic(&mut self, nic: &SeenNic<'_>) {
        let since = self.since(nic.at_ps);
        if !self.bounds.window_ns.contains(&since) {
            return;
        }
        for (place, (_, value)) in names::NIC_COUNTERS.iter().enumerate() {
            let track = self.track_of_host(nic.host.number(), Shown::Counter(place));
            self.count(nic.at_ps, track, value(nic));
        }
    }

    fn port(&mut self, at_ps: u64, switch: SwitchId, port: u16, queued_bytes: u64) {
        let number = switch.number();
        let name = |_: &Self| format!("switch {number}");
        let process = self.process(FIRST_SWITCH + number as u64, name);
        let track = self.track(process, Shown::Port(port));
        self.count(at_ps, track, queued_bytes);
    }
}
