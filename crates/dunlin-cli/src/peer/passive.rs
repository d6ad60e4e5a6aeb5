//! The peer process itself: follows the orders on its standard input, and ends when that closes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::sync::Arc;

use super::{Answer, AnswerOf, Order, OrderOf, Role};
use crate::commands::Failure;
use crate::{input, interrupt, output};

/// Longest order in bytes: an offer is a few hundred.
const ORDER_BYTES: usize = 1 << 20;

/// The orders after the opening.
#[derive(Debug)]
pub struct Orders<R: Role> {
    orders: Receiver<OrderOf<R>>,
    end: Arc<AtomicBool>,
}

/// Has `with` serve what is opened. Its failure is reported to the other side.
///
/// # Errors
/// When the other side sends an invalid order, or cannot be reached.
pub fn serve<R: Role>(
    with: impl FnOnce(R::Opening, Orders<R>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    interrupt::ignore()?;
    let end = Arc::new(AtomicBool::new(false));
    let orders = listen::<R>(Arc::clone(&end))?;
    let Ok(Order::Open(opening)) = orders.recv() else {
        let words = format!("`dunlin perf {}` is an internal command", R::COMMAND);
        return Err(Failure::usage(words));
    };
    with(opening, Orders { orders, end })
        .or_else(|failure| say::<R>(&Answer::Failed(failure.message().into())))
}

/// Reads orders in a separate thread, so that polling ends when the other process does, for any reason.
fn listen<R: Role>(end: Arc<AtomicBool>) -> Result<Receiver<OrderOf<R>>, Failure> {
    let (tell, orders) = channel();
    let thread = std::thread::Builder::new().name("dunlin-orders".to_string());
    thread.spawn(move || {
        let mut from = std::io::stdin().lock();
        while let Ok(Some(line)) = input::line_at_most(&mut from, ORDER_BYTES) {
            let Ok(order) = serde_json::from_slice(&line) else {
                break;
            };
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

fn say<R: Role>(answer: &AnswerOf<R>) -> Result<(), Failure> {
    output::print_message(answer)
}

/// The other side waits for [`Start::begin`].
#[must_use = "the other side waits until it is told that this one has begun"]
#[derive(Debug)]
pub struct Start<'a> {
    end: &'a AtomicBool,
    ready: fn() -> Result<(), Failure>,
}

impl<'a> Start<'a> {
    /// Tells the other side that it may begin, too. The flag is set when this side is to end.
    ///
    /// # Errors
    /// When the other side cannot be told.
    pub fn begin(self) -> Result<&'a AtomicBool, Failure> {
        (self.ready)()?;
        Ok(self.end)
    }
}

impl<R: Role> Orders<R> {
    /// Sends this side's offer and receives the other's. [`Orders::obey`] reports that they are connected.
    ///
    /// # Errors
    /// On any other order.
    pub fn exchange(&self, offer: R::Offer) -> Result<R::Offer, Failure> {
        say::<R>(&Answer::Offer(offer))?;
        match self.orders.recv() {
            Ok(Order::Connect(offer)) => Ok(offer),
            _ => Err(Failure::new(
                "did not receive the address of the other side",
            )),
        }
    }

    /// Runs `part` on each order to begin, and reports its result on the order to end.
    ///
    /// # Errors
    /// The failure of `part`, or an invalid order.
    pub fn obey(
        &self,
        mut part: impl FnMut(Start<'_>) -> Result<R::Ended, Failure>,
    ) -> Result<(), Failure> {
        say::<R>(&Answer::Ready)?;
        let mut said = None;
        for order in &self.orders {
            match order {
                Order::Open(_) | Order::Connect(_) => {
                    return Err(Failure::new("unexpected second order to open"))
                }
                Order::Begin => {
                    said = Some(part(Start {
                        end: &self.end,
                        ready: || say::<R>(&Answer::Ready),
                    })?);
                }
                Order::End => {
                    self.end.store(false, Ordering::Relaxed);
                    let said = said.take();
                    let said = said
                        .ok_or_else(|| Failure::new("order to end before the measurement began"))?;
                    say::<R>(&Answer::Ended(said))?;
                }
            }
        }
        Ok(())
    }
}
