//! `dunlin perf verbs`: perftest's tests, written on the verbs layer and so for every device.
//!
//! There are two processes: the *active* side is the command itself, the *passive* side a second process of this
//! program ([`crate::peer`]). They exchange their addresses over the second one's standard input and output. Where the
//! test is one-sided, the passive side sleeps on its standard input; where it answers, it polls only from
//! [`Peer::begin`](crate::peer::Peer::begin) to [`Peer::end`](crate::peer::Peer::end).

pub mod devices;
pub mod endpoint;
pub mod one_sided;
pub mod patience;
pub mod ping_pong;
pub mod serve;
pub mod stream;

use dunlin_verbs::{Device, DeviceAttributes, Transport, Verbs};
use serde::{Deserialize, Serialize};

use crate::commands::Failure;
use endpoint::Endpoint;

/// The verb that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum Test {
    /// WRITE: ping-pong through memory that both sides poll, or the rate of one side
    Write,
    /// READ: from post to completion, or the rate
    Read,
    /// SEND: ping-pong, or the rate at which the other side receives
    Send,
    /// Fetch-and-add on 8 bytes: from post to completion, or the rate
    Atomic,
}

/// The service below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum Service {
    /// Reliable connection: all tests
    Rc,
    /// Unreliable connection: write and send
    Uc,
    /// Unreliable datagram: send
    Ud,
}

impl From<Service> for Transport {
    fn from(service: Service) -> Self {
        match service {
            Service::Rc => Self::ReliableConnection,
            Service::Uc => Self::UnreliableConnection,
            Service::Ud => Self::UnreliableDatagram,
        }
    }
}

/// The parameters of a measurement that both sides must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The verb.
    pub test: Test,
    /// The service.
    pub service: Service,
    /// Payload bytes of one operation.
    pub size: usize,
    /// Operations that the active side keeps outstanding.
    pub outstanding: usize,
}

/// How a plan is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The passive side sleeps.
    OneSided,
    /// Each WRITE is answered by one.
    WritePingPong,
    /// Each SEND is answered by one.
    SendPingPong,
    /// Many SENDs, acknowledged from time to time.
    Stream,
}

impl Plan {
    /// The plan; atomics always have 8 bytes.
    pub fn new(test: Test, service: Service, size: usize, outstanding: usize) -> Self {
        let size = if test == Test::Atomic { 8 } else { size };
        Self {
            test,
            service,
            size,
            outstanding,
        }
    }

    /// How it is executed.
    pub fn method(&self) -> Method {
        match (self.test, self.outstanding) {
            (Test::Write, 1) => Method::WritePingPong,
            (Test::Send, 1) => Method::SendPingPong,
            (Test::Send, _) => Method::Stream,
            _ => Method::OneSided,
        }
    }

    /// The number of requests posted with one doorbell: at most 16, and at most a quarter of those that may be
    /// outstanding.
    pub fn batch(&self) -> usize {
        let fits = |batch: &usize| self.outstanding % batch == 0 && batch * 4 <= self.outstanding;
        (1..=16).rev().find(fits).unwrap_or(1)
    }

    /// Whether a device can do it.
    ///
    /// # Errors
    /// What the device cannot do, and what it can.
    pub fn check(&self, attributes: &DeviceAttributes) -> Result<(), Failure> {
        let (verb, name) = match self.test {
            Test::Write => (Verbs::WRITE, "write"),
            Test::Read => (Verbs::READ, "read"),
            Test::Send => (Verbs::SEND, "send"),
            Test::Atomic => (Verbs::ATOMIC, "atomic"),
        };
        let service = Transport::from(self.service);
        if !attributes.transports.verbs(service).contains(verb) {
            let can: Vec<String> = [Service::Rc, Service::Uc, Service::Ud]
                .map(Transport::from)
                .into_iter()
                .filter(|&other| attributes.transports.verbs(other).contains(verb))
                .map(|other| other.to_string())
                .collect();
            let help = if can.is_empty() {
                "no transport of the device supports it".to_string()
            } else {
                format!("transports that support it: {}", can.join(", "))
            };
            let device = &attributes.name;
            let words = format!("{service} on the device `{device}` does not support {name}");
            return Err(Failure::usage(words).help(help));
        }
        let most = match self.service {
            Service::Ud => attributes.mtu_bytes,
            _ => attributes.max_message_bytes,
        };
        if self.size > most {
            let words = format!(
                "--size {}: the limit for a message over {service} is {most} bytes",
                self.size
            );
            return Err(Failure::usage(words));
        }
        Ok(())
    }
}

/// Runs the active side for a slice, after a few operations that are not counted.
///
/// # Errors
/// When the peer does not answer, or a request fails.
pub fn measure<D: Device>(
    endpoint: &mut Endpoint<D>,
    slice: std::time::Duration,
) -> Result<crate::report::Tally, Failure> {
    const WARM_UP: std::time::Duration = std::time::Duration::from_millis(1);
    let run = match endpoint.plan().method() {
        Method::OneSided => one_sided::run,
        Method::WritePingPong => ping_pong::by_write,
        Method::SendPingPong => ping_pong::by_send,
        Method::Stream => stream::run,
    };
    run(endpoint, WARM_UP.min(slice))?;
    run(endpoint, slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_fill_what_may_be_outstanding() {
        for (outstanding, batch) in [(1, 1), (2, 1), (7, 1), (8, 2), (9, 1), (64, 16), (1024, 16)] {
            let plan = Plan::new(Test::Read, Service::Rc, 64, outstanding);
            assert_eq!(plan.batch(), batch, "{outstanding}");
            assert_eq!(outstanding % plan.batch(), 0);
        }
    }

    #[test]
    fn an_atomic_has_eight_bytes() {
        assert_eq!(Plan::new(Test::Atomic, Service::Rc, 64, 1).size, 8);
    }
}
