//! The passive side: does what its standard input says, and ends when that closes.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::sync::Arc;

use dunlin_verbs::Device;

use super::devices::{on_device, OnDevice};
use super::endpoint::Endpoint;
use super::peer::{Answer, Order};
use super::{ping_pong, stream, Method, Plan};
use crate::affinity;
use crate::commands::Failure;

/// Serves one measurement.
///
/// # Errors
/// When the other process says what makes no sense.
pub fn run() -> Result<(), Failure> {
    let end = Arc::new(AtomicBool::new(false));
    let orders = listen(Arc::clone(&end))?;
    let Ok(Order::Open { device, plan, core }) = orders.recv() else {
        return Err(Failure::usage("this is a part of `dunlin perf verbs`"));
    };
    let serving = Serving {
        plan,
        core,
        orders,
        end,
    };
    on_device(&device, serving).or_else(|failure| say(&Answer::Failed(failure.message().into())))
}

/// Reads orders in a thread of its own, so that polling ends with the other process, however that ends.
fn listen(end: Arc<AtomicBool>) -> Result<Receiver<Order>, Failure> {
    let (tell, orders) = channel();
    let name = "dunlin-orders".to_string();
    let thread = std::thread::Builder::new().name(name);
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
        // Only now, so that threads of the device stay where they like.
        if let Some(core) = self.core {
            affinity::pin(core);
        }
        let mut endpoint = Endpoint::new(device, self.plan)?;
        say(&Answer::Offer(endpoint.offer()))?;
        let mut received = 0;
        for order in &self.orders {
            match order {
                Order::Open { .. } => return Err(Failure::new("asked to open twice")),
                Order::Connect(offer) => {
                    endpoint.connect(&offer)?;
                    say(&Answer::Ready)?;
                }
                Order::Begin => {
                    let (seen, end) = (endpoint.last_in(), &self.end);
                    say(&Answer::Ready)?;
                    match self.plan.method() {
                        Method::OneSided => {}
                        Method::WritePingPong => {
                            ping_pong::answer_writes(&mut endpoint, seen, end)?
                        }
                        Method::SendPingPong => ping_pong::answer_sends(&mut endpoint, end)?,
                        Method::Stream => stream::acknowledge(&mut endpoint, &mut received, end)?,
                    }
                }
                Order::End => {
                    self.end.store(false, Ordering::Relaxed);
                    say(&Answer::Ended)?;
                }
            }
        }
        Ok(())
    }
}
