//! The limits of a channel, with their defaults.

use std::time::Duration;

use dunlin_verbs::DeviceAttributes;

/// How a thread waits for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// Polls for this long after the last message, then sleeps until the peer wakes it.
    Doze {
        /// Time of busy polling before sleeping.
        spin: Duration,
    },
    /// Always polls: the lowest latency, at the cost of a core.
    Spin,
}

/// Pause of a thread that would sleep, but whose peer is not yet known to have received the announcement: the device
/// may need this core to deliver it.
pub(crate) const UNHEARD_PAUSE: Duration = Duration::from_micros(50);

/// Longest rest of a simulated thread that polls. Arrivals wake it; this bounds how far its view of the time may lag.
pub(crate) const REST: Duration = Duration::from_micros(20);

impl Default for WaitMode {
    /// 50 µs of polling: more than a round trip on any RDMA network, and a hundredth of a per cent of a core at ten
    /// wake-ups a second.
    fn default() -> Self {
        Self::Doze {
            spin: Duration::from_micros(50),
        }
    }
}

/// Effect of a lost packet, for presets over datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacketLoss {
    /// The calls in it end with [`crate::CallError::PacketLost`]; all others continue.
    #[default]
    FailCalls,
    /// It also ends the client, as it ends the process in FaSST (§4.3): the calls in it end as above, and later calls
    /// on any thread end with [`crate::CallError::PacketLossFatal`].
    EndClient,
}

/// When a server asks clients of the preset `auto` to send datagrams instead of WRITEs into rings, if its device
/// supports them and its network is lossless. Clients that access its memory are not asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Datagrams {
    /// When nearly every message carries the requests of one thread only, and an attempt has shown that datagrams give
    /// more throughput.
    #[default]
    WhenTheyPay,
    /// Never.
    Never,
    /// Always.
    Always,
}

impl std::str::FromStr for Datagrams {
    type Err = UnknownDatagrams;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "when-they-pay" => Ok(Self::WhenTheyPay),
            "never" => Ok(Self::Never),
            "always" => Ok(Self::Always),
            _ => Err(UnknownDatagrams(name.to_owned())),
        }
    }
}

/// The error for a name that is not one of [`Datagrams`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown value '{0}' for datagrams; available: when-they-pay, never, always")]
pub struct UnknownDatagrams(String);

/// Maximum number of datagrams per doorbell.
pub(crate) const DOORBELL: usize = 16;
/// Maximum number of RECEIVEs posted at once.
pub(crate) const RECEIVES_AT_ONCE: usize = 16;
/// At least one in this many SENDs of a datagram queue pair is signaled, so that send queue entries are freed (FaSST's
/// selective signaling).
pub(crate) const SIGNAL_EVERY: usize = 64;
/// Maximum number of messages in a datagram: its header counts them in one byte.
pub(crate) const MESSAGES: u8 = u8::MAX;

/// How many verbs of a datagram queue pair are batched (FaSST §4.2), for presets over datagrams. Batching is cheaper;
/// smaller numbers serve to measure its benefit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramBatches {
    /// Maximum number of datagrams per doorbell, also for different peers, from 1 to 16 (doorbell batching). 16 by
    /// default.
    pub sends: usize,
    /// RECEIVEs posted at once, from 1 to 16 (cheap RECEIVE posting). 16 by default.
    pub receives: usize,
    /// One in this many SENDs is signaled, from 1 to 64 (selective signaling). 64 by default.
    pub sends_per_completion: usize,
    /// Maximum number of requests in a datagram of a client's thread, and of responses in one of a server, from 1 to
    /// 255, if they fit. 255 by default: what is sent to one peer at the same time shares a datagram. With 1 each
    /// message has a datagram of its own, as in FaSST's own benchmarks (four verbs for each RPC, also where everything
    /// is batched). `erpc`, whose packets are numbered, has its own rule.
    pub messages: usize,
}

impl Default for DatagramBatches {
    fn default() -> Self {
        Self {
            sends: DOORBELL,
            receives: RECEIVES_AT_ONCE,
            sends_per_completion: SIGNAL_EVERY,
            messages: usize::from(MESSAGES),
        }
    }
}

impl DatagramBatches {
    /// Checks the limits; the error names the one that is out of range.
    fn validate(&self) -> Result<(), String> {
        let numbers = [
            ("sends", self.sends, DOORBELL),
            ("receives", self.receives, RECEIVES_AT_ONCE),
            (
                "sends_per_completion",
                self.sends_per_completion,
                SIGNAL_EVERY,
            ),
            ("messages", self.messages, usize::from(MESSAGES)),
        ];
        for (name, number, most) in numbers {
            if number == 0 || number > most {
                return Err(format!(
                    "datagram_batches.{name} is {number}: it must be from 1 to {most}"
                ));
            }
        }
        Ok(())
    }
}

/// Limits of one channel. Each side has its own; what a side receives is bounded by its own limits.
#[derive(Clone, Debug)]
pub struct ChannelConfig {
    /// Size in bytes of the ring that the peer writes into: a power of two from 16 KiB to 16 MiB. 64 KiB by default. A
    /// lane used by one thread only, over a device that stores WRITEs into the peer's memory (`shm`), uses half of it.
    pub ring_bytes: usize,
    /// Longest payload that travels inside the ring; longer ones are fetched by READ. At most a quarter of the ring. 4
    /// KiB by default.
    pub eager_bytes: usize,
    /// Longest payload of a request or response. 16 MiB by default.
    pub max_message_bytes: usize,
    /// Maximum number of calls outstanding on a lane. 1024 by default; where threads share lanes, at most 4096 per
    /// thread.
    pub max_outstanding: usize,
    /// How threads wait.
    pub wait: WaitMode,
    /// Servers over rings: each message of a client is answered by one message, as in FLOCK (§8.3.1: as many responses
    /// are coalesced as requests were). Off by default: requests of several messages are answered together, with fewer
    /// WRITEs.
    pub answer_each_message: bool,
    /// Presets over datagrams: how long a call may go without a response or other sign of progress before the client
    /// asks for its state, from 10 ms to an hour. 1 s by default, as in FaSST.
    pub loss_timeout: Duration,
    /// Presets over datagrams without retransmission: the effect of a lost packet.
    pub packet_loss: PacketLoss,
    /// Presets over datagrams: how many verbs are batched.
    pub datagram_batches: DatagramBatches,
    /// The preset `erpc`: maximum number of packets of a session in flight, from 1 to 32. `None`, the default, means 8,
    /// or 32 on devices whose packets are made by software.
    pub session_credits: Option<usize>,
    /// The preset `erpc`: the rate of a session follows its round trips (Timely), on devices whose packets are made by
    /// a NIC. On other devices round trips reflect the scheduler, and only the number of packets in flight limits a
    /// session: each lost packet occupies its place for at least 5 ms. On by default.
    pub congestion_control: bool,
    /// Traffic class of the packets of connections (not of datagrams), which networks map to priorities; zero, the
    /// default, is the device's own. A client's setting also applies to what the server sends to it, unless the server
    /// has a class of its own. Over Flor, acknowledgements have the next higher priority.
    pub traffic_class: u8,
}

impl Default for ChannelConfig {
    fn default() -> Self {
        Self {
            ring_bytes: 64 << 10,
            eager_bytes: 4 << 10,
            max_message_bytes: 16 << 20,
            max_outstanding: 1024,
            wait: WaitMode::default(),
            loss_timeout: Duration::from_secs(1),
            answer_each_message: false,
            packet_loss: PacketLoss::default(),
            datagram_batches: DatagramBatches::default(),
            session_credits: None,
            congestion_control: true,
            traffic_class: 0,
        }
    }
}

/// Number of rings that one ring of [`ChannelConfig::shared_by_many`] replaces.
const SHARED_RINGS: usize = 4;
/// Smallest and largest size of a ring.
const RING_BYTES: std::ops::RangeInclusive<usize> = (16 << 10)..=(16 << 20);
/// Smallest payload limit inside a ring: the descriptor of a long message must fit.
pub(crate) const EAGER_BYTES_MIN: usize = 24;
/// Longest message that the length fields of the wire format and our arithmetic support.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1 << 30;
/// Shortest and longest loss timeout.
const LOSS_TIMEOUT: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(3600);
/// Maximum number of packets of a session in flight: a receive queue has two RECEIVEs for each.
const SESSION_CREDITS: usize = 32;
/// Maximum number of calls outstanding on a lane.
const MAX_OUTSTANDING: usize = 1 << 16;

impl ChannelConfig {
    /// For a lane that many threads share because there are to be `few` lanes: its ring holds as much in flight as the
    /// rings of the lanes that it replaces.
    pub(crate) fn shared_by_many(&self, few: bool) -> Self {
        let rings = if few { SHARED_RINGS } else { 1 };
        Self {
            ring_bytes: (self.ring_bytes * rings).min(*RING_BYTES.end()),
            ..self.clone()
        }
    }

    /// For a lane used by one thread only. Where WRITEs are stores, a ring is read while it is written, and it is
    /// resident on both sides for each of thousands of connections: half of it suffices.
    pub(crate) fn of_one_thread(&self, attributes: &DeviceAttributes) -> Self {
        let least = (4 * self.eager_bytes)
            .next_power_of_two()
            .max(*RING_BYTES.start());
        let ring_bytes = match attributes.writes_are_messages {
            true => self.ring_bytes,
            false => (self.ring_bytes / 2).max(least),
        };
        Self {
            ring_bytes,
            ..self.clone()
        }
    }

    /// Checks the limits against each other; the error names the one that is wrong.
    pub(crate) fn validate(&self) -> Result<(), String> {
        if !self.ring_bytes.is_power_of_two() || !RING_BYTES.contains(&self.ring_bytes) {
            return Err(format!(
                "ring_bytes is {}: it must be a power of two from {} to {}",
                self.ring_bytes,
                RING_BYTES.start(),
                RING_BYTES.end()
            ));
        }
        let eager_most = self.ring_bytes / 4;
        if self.eager_bytes < EAGER_BYTES_MIN || self.eager_bytes > eager_most {
            return Err(format!(
                "eager_bytes is {}: it must be from {EAGER_BYTES_MIN} to {eager_most}, a quarter of the ring",
                self.eager_bytes
            ));
        }
        if self.max_message_bytes < self.eager_bytes || self.max_message_bytes > MAX_MESSAGE_BYTES {
            return Err(format!(
                "max_message_bytes is {}: it must be from eager_bytes ({}) to {MAX_MESSAGE_BYTES}",
                self.max_message_bytes, self.eager_bytes
            ));
        }
        if self.max_outstanding == 0 || self.max_outstanding > MAX_OUTSTANDING {
            return Err(format!(
                "max_outstanding is {}: it must be from 1 to {MAX_OUTSTANDING}",
                self.max_outstanding
            ));
        }
        if !LOSS_TIMEOUT.contains(&self.loss_timeout) {
            return Err(format!(
                "loss_timeout is {:?}: it must be from {:?} to {:?}",
                self.loss_timeout,
                LOSS_TIMEOUT.start(),
                LOSS_TIMEOUT.end()
            ));
        }
        self.datagram_batches.validate()?;
        let credits = self.session_credits.unwrap_or(1);
        if credits == 0 || credits > SESSION_CREDITS {
            return Err(format!(
                "session_credits is {credits}: it must be from 1 to {SESSION_CREDITS}"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_errors_name_the_limit() {
        assert_eq!(ChannelConfig::default().validate(), Ok(()));
        let wrong = [
            (
                ChannelConfig {
                    ring_bytes: 100_000,
                    ..Default::default()
                },
                "ring_bytes",
            ),
            (
                ChannelConfig {
                    eager_bytes: 60_000,
                    ..Default::default()
                },
                "eager_bytes",
            ),
            (
                ChannelConfig {
                    max_message_bytes: 5,
                    ..Default::default()
                },
                "max_message_bytes",
            ),
            (
                ChannelConfig {
                    max_outstanding: 0,
                    ..Default::default()
                },
                "max_outstanding",
            ),
            (
                ChannelConfig {
                    loss_timeout: Duration::ZERO,
                    ..Default::default()
                },
                "loss_timeout",
            ),
            (
                ChannelConfig {
                    session_credits: Some(33),
                    ..Default::default()
                },
                "session_credits",
            ),
            (
                ChannelConfig {
                    datagram_batches: DatagramBatches {
                        receives: 17,
                        ..Default::default()
                    },
                    ..Default::default()
                },
                "datagram_batches.receives",
            ),
        ];
        for (config, name) in wrong {
            assert!(config.validate().unwrap_err().starts_with(name));
        }
    }
}
