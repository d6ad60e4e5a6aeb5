//! The settings of a job, which must be the same in all its processes unless said otherwise.

use std::net::IpAddr;
use std::time::Duration;

use dunlin_bootstrap::Secret;
use dunlin_ring::{Design, RingConfig, LINE_BYTES};

use crate::error::JoinError;
use crate::wire::HEADER_BYTES;

/// Settings of a job, each with its default. All processes of a job need the same [`Settings::eager_bytes`],
/// [`Settings::ring_bytes`], [`Settings::secret`] and [`Settings::job`].
#[derive(Clone, Debug)]
#[must_use = "settings are passed to a way to join"]
pub struct Settings {
    pub(crate) device: Option<String>,
    pub(crate) secret: Option<Secret>,
    pub(crate) listen: Option<IpAddr>,
    pub(crate) job: u64,
    pub(crate) join_timeout: Duration,
    pub(crate) eager_bytes: usize,
    pub(crate) ring_bytes: usize,
    pub(crate) unexpected_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            device: None,
            secret: None,
            listen: None,
            job: 0,
            join_timeout: Duration::from_secs(30),
            // Long enough that its header and the pointers cost little, and so short that a ring has many in flight.
            eager_bytes: 16 << 10,
            // With 16 ranks on a host, the rings of each still fit into a large cache.
            ring_bytes: 512 << 10,
            unexpected_bytes: 4 << 20,
        }
    }
}

impl Settings {
    /// Uses this device, by its name or kind as in `dunlin devices`; joining fails if it cannot be used. By default the
    /// best that both ranks of a pair have: `shm` on one host, else an RDMA NIC or `roce`.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// The secret that all ranks must know. None by default.
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// The address of this host on which this rank listens for others while it joins; each process may have its own. By
    /// default the one from which this host reaches rank 0. Rank 0 listens on the address of the rendezvous.
    pub fn listen(mut self, address: IpAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// A number of the job, so that ranks of two jobs that were given the same rendezvous do not mix. 0 by default.
    pub fn job(mut self, number: u64) -> Self {
        self.job = number;
        self
    }

    /// Time within which all ranks must join. 30 s by default.
    pub fn join_timeout(mut self, limit: Duration) -> Self {
        self.join_timeout = limit;
        self
    }

    /// Messages of at most this many bytes are sent as one ring message; longer ones in pieces of this length. 16 KiB
    /// by default, at most a quarter of the ring.
    pub fn eager_bytes(mut self, bytes: usize) -> Self {
        self.eager_bytes = bytes;
        self
    }

    /// Bytes of each ring, a power of two from 16 KiB to 64 MiB. A rank has two rings for each other rank, with an
    /// array of this length for each direction. 512 KiB by default.
    pub fn ring_bytes(mut self, bytes: usize) -> Self {
        self.ring_bytes = bytes;
        self
    }

    /// Bytes of messages that match no receive which are held for each source; beyond that, messages of the source stay
    /// in its ring, and it has to wait. A message counts with 64 bytes more than it has. 4 MiB by default; each process
    /// may have its own.
    pub fn unexpected_bytes(mut self, bytes: usize) -> Self {
        self.unexpected_bytes = bytes;
        self
    }

    /// The configuration of the rings.
    pub(crate) fn rings(&self) -> Result<RingConfig, JoinError> {
        let range = |what, value: usize, range| {
            Err(JoinError::Range {
                what,
                value: value as u64,
                range,
            })
        };
        if !self.ring_bytes.is_power_of_two() || !(1 << 14..=1 << 26).contains(&self.ring_bytes) {
            return range(
                "the length of a ring",
                self.ring_bytes,
                "a power of two, 16 KiB to 64 MiB",
            );
        }
        if !(1..=self.ring_bytes / 4 - HEADER_BYTES).contains(&self.eager_bytes) {
            return range(
                "the length of a piece",
                self.eager_bytes,
                "at least 1 and, with 16 bytes more, at most a quarter of the ring",
            );
        }
        Ok(RingConfig {
            design: Design::RB2,
            slots: self.ring_bytes / LINE_BYTES,
            slot_bytes: LINE_BYTES,
            ..RingConfig::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_accepted_setting_makes_a_ring_that_carries_a_piece() {
        for bytes in [14, 16, 19, 26].map(|bits| 1_usize << bits) {
            let settings = Settings::default()
                .ring_bytes(bytes)
                .eager_bytes(bytes / 4 - HEADER_BYTES);
            settings.rings().unwrap().check().unwrap();
        }
        for (ring, eager) in [
            (1 << 13, 64),
            (3 << 14, 64),
            (1 << 16, 0),
            (1 << 16, 1 << 14),
        ] {
            let settings = Settings::default().ring_bytes(ring).eager_bytes(eager);
            assert!(settings.rings().is_err(), "{ring} {eager}");
        }
    }
}
