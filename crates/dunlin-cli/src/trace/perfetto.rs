//! The messages of Perfetto's trace format that a simulated run needs, by the numbers of its schema
//! (`protos/perfetto/trace/perfetto_trace.proto`). Tracks are described before their events; names of slices are
//! written once and then numbered.

use std::io::{self, Write};

use prost::Message;

/// The only writer of the file.
const SEQUENCE: u32 = 1;
/// Numbers of names begin with this packet.
const STATE_CLEARED: u32 = 1;
/// The packet uses such numbers.
const NEEDS_STATE: u32 = 2;
/// Field 1 of the file, with a length: a packet.
const PACKET_KEY: u8 = 1 << 3 | 2;

/// Kinds of events.
pub(super) const SLICE_BEGIN: i32 = 1;
pub(super) const SLICE_END: i32 = 2;
pub(super) const COUNTER: i32 = 4;
/// Units of counters.
pub(super) const COUNT: i32 = 2;
pub(super) const BYTES: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub(super) struct TracePacket {
    /// Nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub(super) timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    pub(super) sequence: u32,
    #[prost(message, optional, tag = "11")]
    pub(super) event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub(super) interned: Option<InternedData>,
    #[prost(uint32, tag = "13")]
    pub(super) flags: u32,
    #[prost(message, optional, tag = "60")]
    pub(super) track: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    pub(super) uuid: u64,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(super) process: Option<ProcessDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) parent: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(super) counter: Option<CounterDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ProcessDescriptor {
    #[prost(int32, tag = "1")]
    pub(super) pid: i32,
    #[prost(string, tag = "6")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CounterDescriptor {
    #[prost(int32, tag = "3")]
    pub(super) unit: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackEvent {
    #[prost(int32, tag = "9")]
    pub(super) kind: i32,
    #[prost(uint64, optional, tag = "10")]
    pub(super) name: Option<u64>,
    #[prost(uint64, tag = "11")]
    pub(super) track: u64,
    #[prost(int64, optional, tag = "30")]
    pub(super) value: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InternedData {
    #[prost(message, repeated, tag = "2")]
    pub(super) names: Vec<EventName>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EventName {
    #[prost(uint64, tag = "1")]
    pub(super) number: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
}

/// A file that is being written.
#[derive(Debug)]
pub(super) struct File<W> {
    output: W,
    buffer: Vec<u8>,
    begun: bool,
}

impl<W: Write> File<W> {
    pub(super) fn new(output: W) -> Self {
        Self {
            output,
            buffer: Vec::new(),
            begun: false,
        }
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// The system's error when writing.
    pub(super) fn add(&mut self, mut packet: TracePacket) -> io::Result<()> {
        packet.sequence = SEQUENCE;
        packet.flags = match std::mem::replace(&mut self.begun, true) {
            true => NEEDS_STATE,
            false => STATE_CLEARED,
        };
        self.buffer.clear();
        self.buffer.push(PACKET_KEY);
        packet
            .encode_length_delimited(&mut self.buffer)
            .map_err(io::Error::other)?;
        self.output.write_all(&self.buffer)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
