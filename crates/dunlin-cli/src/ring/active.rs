//! The producer's side of one measured ring, with its consumer's process.

use std::ops::Range;
use std::time::{Duration, Instant};

use dunlin_ring::{Offer, Producer, UnconnectedProducer, OFFER_BYTES};
use dunlin_verbs::Device;

use super::ping_pong::{Player, UnconnectedPlayer};
use super::produce::{produce, Numbers};
use super::raw::RawWriter;
use super::raw_ping_pong::RawPlayer;
use super::serve::{Consumer, Opening};
use super::{Plan, Test};
use crate::commands::Failure;
use crate::peer::Peer;
use crate::report::Tally;

/// The duration of the warm-up.
const WARM_UP: Duration = Duration::from_millis(2);

/// One design under measurement.
#[derive(Debug)]
pub struct Active<D: Device> {
    plan: Plan,
    peer: Peer<Consumer>,
    end: End<D>,
}

#[derive(Debug)]
enum End<D: Device> {
    Ring(Box<Producer<D>>, Numbers),
    Raw(Box<RawWriter<D>>),
    PingPong(Box<Player<D>>),
    RawPingPong(Box<RawPlayer<D>>),
}

impl<D: Device> Active<D> {
    /// Creates both sides and connects them. The calling thread stays where it is; the consumer's process, which was
    /// started before that was decided, stays on `core`.
    ///
    /// # Errors
    /// When the device's limits do not permit it, or the design does not support it.
    pub fn start(
        device: &D,
        plan: &Plan,
        mut peer: Peer<Consumer>,
        core: Option<usize>,
    ) -> Result<Self, Failure> {
        let opening = Opening {
            plan: plan.clone(),
            core,
        };
        let theirs = peer.open(opening)?;
        let end = match (plan.config(device.attributes()), plan.test) {
            (Some(config), Test::PingPong) => {
                let player = UnconnectedPlayer::new(device, &config)?;
                peer.connect(player.offer())?;
                End::PingPong(Box::new(player.connect(&theirs)?))
            }
            (None, Test::PingPong) => {
                let mut player = RawPlayer::new(device, plan)?;
                peer.connect(player.offer())?;
                player.connect(&theirs)?;
                End::RawPingPong(Box::new(player))
            }
            (Some(config), Test::OneWay) => {
                let producer = UnconnectedProducer::new(device, &config).map_err(Failure::new)?;
                peer.connect(producer.offer().encode().to_vec())?;
                let bytes: &[u8; OFFER_BYTES] = theirs
                    .as_slice()
                    .try_into()
                    .map_err(|_| Failure::new("received an offer of the wrong length"))?;
                let producer = producer
                    .connect(&Offer::decode(bytes))
                    .map_err(Failure::new)?;
                End::Ring(Box::new(producer), Numbers::default())
            }
            (None, Test::OneWay) => {
                let mut writer = RawWriter::new(device, plan)?;
                peer.connect(writer.offer())?;
                writer.connect(&theirs)?;
                End::Raw(Box::new(writer))
            }
        };
        Ok(Self {
            plan: plan.clone(),
            peer,
            end,
        })
    }

    /// The plan of the measurement.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Measures one slice, and returns its start and end; the consumer polls only during it.
    ///
    /// # Errors
    /// When the ring fails.
    pub fn slice(&mut self, length: Duration) -> Result<(Tally, Range<Instant>), Failure> {
        self.peer.begin()?;
        let warm_up = WARM_UP.min(length);
        let (size, verify) = (self.plan.size, self.plan.verify);
        let start = std::cell::Cell::new(Instant::now());
        let warm = |_| start.set(Instant::now());
        let ours = match &mut self.end {
            End::Ring(producer, numbers) => {
                let produce = match verify {
                    true => produce::<D, true>,
                    false => produce::<D, false>,
                };
                produce(producer, size, numbers, warm_up)
                    .map(warm)
                    .and_then(|()| produce(producer, size, numbers, length))
            }
            End::Raw(writer) => writer
                .run(warm_up)
                .map(warm)
                .and_then(|()| writer.run(length)),
            End::PingPong(player) => player
                .ping(size, verify, warm_up)
                .map(warm)
                .and_then(|()| player.ping(size, verify, length)),
            End::RawPingPong(player) => player
                .ping(warm_up)
                .map(warm)
                .and_then(|()| player.ping(length)),
        };
        let measured = start.get()..Instant::now();
        // If both have failed, the consumer's error tells the reason: to the producer it is only gone.
        let theirs = self.peer.end()?;
        let mut tally = ours?;
        tally.errors += theirs.errors;
        tally.latencies.merge(&theirs.latencies);
        if theirs.operations > 0 && theirs.operations < tally.operations {
            tally.errors += tally.operations - theirs.operations;
        }
        Ok((tally, measured))
    }

    /// Ends the consumer's process.
    ///
    /// # Errors
    /// When it ends unexpectedly.
    pub fn stop(self) -> Result<(), Failure> {
        drop(self.end);
        self.peer.stop()
    }
}
