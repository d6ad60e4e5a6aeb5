//! The consumer's process.

use dunlin_ring::{Offer, UnconnectedConsumer, OFFER_BYTES};
use dunlin_verbs::Device;
use serde::{Deserialize, Serialize};

use super::consume::consume;
use super::ping_pong::UnconnectedPlayer;
use super::raw::RawTarget;
use super::raw_ping_pong::RawPlayer;
use super::{Plan, Test};
use crate::affinity;
use crate::commands::Failure;
use crate::peer::{self, Orders, Role};
use crate::report::Tally;
use crate::verbs::devices::{on_device_with, OnDevice, Pages};

/// What a consumer opens.
#[derive(Debug, Serialize, Deserialize)]
pub struct Opening {
    /// The plan of the measurement.
    pub plan: Plan,
    /// The core to run on.
    pub core: Option<usize>,
}

/// The consumer's process. Its offers are the encoded ones of a ring's end or of a raw one; of its tally's times only
/// the latencies are meaningful.
#[derive(Debug)]
pub struct Consumer;

impl Role for Consumer {
    const COMMAND: &'static str = "ring-peer";
    const WHO: &'static str = "the consumer's process";
    type Opening = Opening;
    type Offer = Vec<u8>;
    type Ended = Tally;
}

/// Serves one producer.
///
/// # Errors
/// When the other process sends an invalid message.
pub fn run() -> Result<(), Failure> {
    peer::serve::<Consumer>(|Opening { plan, core }, orders| {
        let (device, pages) = (plan.device.clone(), Pages::of(&plan));
        let serving = Serving { plan, core, orders };
        on_device_with(&device, pages, serving)
    })
}

struct Serving {
    plan: Plan,
    core: Option<usize>,
    orders: Orders<Consumer>,
}

impl OnDevice for Serving {
    type Output = ();

    fn run<D: Device>(self, device: D) -> Result<(), Failure> {
        // Only now, so that threads of the device stay where they like; and before memory is made, which then is on
        // this core's node.
        if let Some(core) = self.core {
            affinity::pin(core);
        }
        let (size, verify) = (self.plan.size, self.plan.verify);
        match (self.plan.config(device.attributes()), self.plan.test) {
            (Some(config), Test::PingPong) => {
                let player = UnconnectedPlayer::new(&device, &config)?;
                let theirs = self.orders.exchange(player.offer())?;
                let mut player = player.connect(&theirs)?;
                self.orders
                    .obey(|start| player.answer(size, verify, start.begin()?))
            }
            (None, Test::PingPong) => {
                let mut player = RawPlayer::new(&device, &self.plan)?;
                let theirs = self.orders.exchange(player.offer())?;
                player.connect(&theirs)?;
                self.orders.obey(|start| player.answer(start.begin()?))
            }
            (Some(config), Test::OneWay) => {
                let consumer = UnconnectedConsumer::new(&device, &config).map_err(Failure::new)?;
                let offer = consumer.offer().encode().to_vec();
                let theirs = self.orders.exchange(offer)?;
                let bytes: &[u8; OFFER_BYTES] = theirs
                    .as_slice()
                    .try_into()
                    .map_err(|_| Failure::new("received an offer of the wrong length"))?;
                let mut consumer = consumer
                    .connect(&Offer::decode(bytes))
                    .map_err(Failure::new)?;
                self.orders.obey(|start| match verify {
                    true => consume::<D, true>(&mut consumer, size, start.begin()?),
                    false => consume::<D, false>(&mut consumer, size, start.begin()?),
                })
            }
            (None, Test::OneWay) => {
                let mut target = RawTarget::new(&device, &self.plan)?;
                let theirs = self.orders.exchange(target.offer())?;
                target.connect(&theirs)?;
                self.orders
                    .obey(|start| start.begin().map(|_| Tally::default()))
            }
        }
    }
}
