//! The passive side's process.

use dunlin_verbs::Device;
use serde::{Deserialize, Serialize};

use super::devices::{on_device, OnDevice};
use super::endpoint::{Endpoint, Offer};
use super::{ping_pong, stream, Method, Plan};
use crate::affinity;
use crate::commands::Failure;
use crate::peer::{self, Orders, Role};

/// What the passive side opens.
#[derive(Debug, Serialize, Deserialize)]
pub struct Opening {
    /// The device's name.
    pub device: String,
    /// What will be measured.
    pub plan: Plan,
    /// The core to stay on.
    pub core: Option<usize>,
}

/// The passive side's process.
#[derive(Debug)]
pub struct Passive;

impl Role for Passive {
    const COMMAND: &'static str = "verbs-peer";
    const WHO: &'static str = "the peer process";
    type Opening = Opening;
    type Offer = Offer;
    type Ended = ();
}

/// Serves one measurement.
///
/// # Errors
/// When the other process sends an invalid message.
pub fn run() -> Result<(), Failure> {
    peer::serve::<Passive>(|Opening { device, plan, core }, orders| {
        on_device(&device, Serving { plan, core, orders })
    })
}

struct Serving {
    plan: Plan,
    core: Option<usize>,
    orders: Orders<Passive>,
}

impl OnDevice for Serving {
    type Output = ();

    fn run<D: Device>(self, device: D) -> Result<(), Failure> {
        // Only now, so that threads of the device stay where they like.
        if let Some(core) = self.core {
            affinity::pin(core);
        }
        let mut endpoint = Endpoint::new(device, self.plan)?;
        let theirs = self.orders.exchange(endpoint.offer())?;
        endpoint.connect(&theirs)?;
        let mut received = 0;
        self.orders.obey(|start| {
            let seen = endpoint.last_in();
            let end = start.begin()?;
            match self.plan.method() {
                Method::OneSided => {}
                Method::WritePingPong => ping_pong::answer_writes(&mut endpoint, seen, end)?,
                Method::SendPingPong => ping_pong::answer_sends(&mut endpoint, end)?,
                Method::Stream => stream::acknowledge(&mut endpoint, &mut received, end)?,
            }
            Ok(())
        })
    }
}
