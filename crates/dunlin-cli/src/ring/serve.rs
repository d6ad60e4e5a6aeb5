//! The consumer's process: does what its standard input says, and ends when that closes.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::sync::Arc;

use dunlin_ring::{Offer, UnconnectedConsumer, OFFER_BYTES};
use dunlin_verbs::Device;

use super::consume::consume;
use super::peer::{Answer, Order};
use super::ping_pong::UnconnectedPlayer;
use super::raw::RawTarget;
use super::raw_ping_pong::RawPlayer;
use super::{Plan, Test};
use crate::affinity;
use crate::commands::Failure;
use crate::report::Tally;
use crate::verbs::devices::{on_device_with, OnDevice, Pages};

/// Serves one producer.
///
/// # Errors
/// When the other process says what makes no sense.
pub fn run() -> Result<(), Failure> {
    let end = Arc::new(AtomicBool::new(false));
    let orders = listen(Arc::clone(&end))?;
    let Ok(Order::Open { plan, core }) = orders.recv() else {
        return Err(Failure::usage("this is a part of `dunlin perf ring`"));
    };
    let (device, pages) = (plan.device.clone(), Pages::of(&plan));
    let serving = Serving {
        plan,
        core,
        orders,
        end,
    };
    on_device_with(&device, pages, serving)
        .or_else(|failure| say(&Answer::Failed(failure.message().into())))
}

/// Reads orders in a thread of its own, so that polling ends with the other process, however that ends.
fn listen(end: Arc<AtomicBool>) -> Result<Receiver<Order>, Failure> {
    let (tell, orders) = channel();
    let thread = std::thread::Builder::new().name("dunlin-orders".to_string());
    thread.spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let order = line.ok().and_then(|line| serde_json::from_str(&line).ok());
            let Some(order) = order else { break };
            if matches!(order, Order::End) {
                end.store(true, Ordering::Relaxed);
            }
            if tell.send(order).is_err() {
                // It has failed and said so.
                break;
            }
        }
        std::process::exit(0);
    })?;
    Ok(orders)
}

fn say(answer: &Answer) -> Result<(), Failure> {
    let mut line = serde_json::to_string(answer).map_err(Failure::new)?;
    line.push('\n');
    let mut output = std::io::stdout();
    output.write_all(line.as_bytes())?;
    output.flush()?;
    Ok(())
}

struct Serving {
    plan: Plan,
    core: Option<usize>,
    orders: Receiver<Order>,
    end: Arc<AtomicBool>,
}

impl OnDevice for Serving {
    type Output = ();

    fn run<D: Device>(self, device: D) -> Result<(), Failure> {
        // Only now, so that threads of the device stay where they like; and before memory is made, which then is on this core's node.
        if let Some(core) = self.core {
            affinity::pin(core);
        }
        let (size, verify) = (self.plan.size, self.plan.verify);
        match (self.plan.config(device.attributes()), self.plan.test) {
            (Some(config), Test::PingPong) => {
                let player = UnconnectedPlayer::new(&device, &config)?;
                let theirs = self.connect(player.offer(), String::new())?;
                let mut player = player.connect(&theirs)?;
                say(&Answer::Ready)?;
                self.answer(|end| player.answer(size, verify, end))
            }
            (None, Test::PingPong) => {
                let mut player = RawPlayer::new(&device, &self.plan)?;
                let theirs = self.connect(player.offer(), String::new())?;
                player.connect(&theirs)?;
                say(&Answer::Ready)?;
                self.answer(|end| player.answer(end))
            }
            (Some(config), Test::OneWay) => {
                let consumer = UnconnectedConsumer::new(&device, &config).map_err(Failure::new)?;
                let offer = consumer.offer().encode().to_vec();
                let theirs = self.connect(offer, String::new())?;
                let bytes: &[u8; OFFER_BYTES] = theirs
                    .as_slice()
                    .try_into()
                    .map_err(|_| Failure::new("an offer of the wrong length"))?;
                let mut consumer = consumer
                    .connect(&Offer::decode(bytes))
                    .map_err(Failure::new)?;
                say(&Answer::Ready)?;
                match verify {
                    true => self.answer(|end| consume::<D, true>(&mut consumer, size, end)),
                    false => self.answer(|end| consume::<D, false>(&mut consumer, size, end)),
                }
            }
            (None, Test::OneWay) => {
                let mut target = RawTarget::new(&device, &self.plan)?;
                let theirs = self.connect(target.offer(), String::new())?;
                target.connect(&theirs)?;
                say(&Answer::Ready)?;
                self.answer(|_| Ok(Tally::default()))
            }
        }
    }
}

impl Serving {
    fn connect(&self, offer: Vec<u8>, pages: String) -> Result<Vec<u8>, Failure> {
        say(&Answer::Offer(offer, pages))?;
        match self.orders.recv() {
            Ok(Order::Connect(offer)) => Ok(offer),
            _ => Err(Failure::new("not told where the producer is")),
        }
    }

    fn answer(
        &self,
        mut measure: impl FnMut(&AtomicBool) -> Result<Tally, Failure>,
    ) -> Result<(), Failure> {
        let mut tally = Tally::default();
        for order in &self.orders {
            match order {
                Order::Open { .. } | Order::Connect(_) => {
                    return Err(Failure::new("asked to open twice"))
                }
                Order::Begin => {
                    say(&Answer::Ready)?;
                    tally = measure(&self.end)?;
                }
                Order::End => {
                    self.end.store(false, Ordering::Relaxed);
                    say(&Answer::Ended(std::mem::take(&mut tally)))?;
                }
            }
        }
        Ok(())
    }
}
