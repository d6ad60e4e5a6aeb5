//! The other process of a measurement: a process of this program, controlled by lines of JSON.
//!
//! The active side has a [`Peer`]; the process that it starts reads [`Orders`]. Both agree on a [`Role`]: what is
//! opened, what an offer contains and what is reported at the end. A process whose other side is lost ends, because its
//! standard input closes.

mod active;
mod passive;

pub use active::Peer;
pub use passive::{serve, Orders, Start};

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// One kind of other process.
pub trait Role {
    /// The hidden subcommand of `dunlin perf` that runs it.
    const COMMAND: &'static str;
    /// Who it is, in messages to people.
    const WHO: &'static str;
    /// What the process opens.
    type Opening: Serialize + DeserializeOwned + Debug + Send + 'static;
    /// Where a side is.
    type Offer: Serialize + DeserializeOwned + Debug + Send + 'static;
    /// What the process reports when it has stopped.
    type Ended: Serialize + DeserializeOwned + Debug;
}

/// The orders to the process.
#[derive(Debug, Serialize, Deserialize)]
enum Order<O, F> {
    /// Open a device and make the other end.
    Open(O),
    /// Connect it to the active side's.
    Connect(F),
    /// Do what this test has the other side do.
    Begin,
    /// Stop.
    End,
}

type OrderOf<R> = Order<<R as Role>::Opening, <R as Role>::Offer>;
type AnswerOf<R> = Answer<<R as Role>::Offer, <R as Role>::Ended>;

/// The messages of the process.
#[derive(Debug, Serialize, Deserialize)]
enum Answer<F, E> {
    /// Where it is.
    Offer(F),
    /// The order is carried out, or being carried out.
    Ready,
    /// It has stopped.
    Ended(E),
    /// It cannot.
    Failed(String),
}
