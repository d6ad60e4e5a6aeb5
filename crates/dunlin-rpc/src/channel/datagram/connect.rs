//! Setting up a session: the parameters that one side sends, and how it interprets those of the peer.

use std::sync::{Arc, PoisonError};

use dunlin_verbs::{Device, EndpointAddress, VerbsError};

use super::endpoint::sessions_max;
use super::packet::{self, Head};
use super::sends::Route;
use super::{Endpoint, Shared, CALLS, PACKET_BYTES_MAX, PACKET_BYTES_MIN};
use crate::channel::parameters::{named, Parameters, PeerParameters};
use crate::config::MAX_MESSAGE_BYTES;

/// Names of the parameters that two sides exchange.
mod parameter {
    pub(super) const SESSION: &str = "session";
    pub(super) const COOKIE: &str = "session-cookie";
    pub(super) const PACKET: &str = "packet-bytes";
    pub(super) const LONGEST: &str = "max-message-bytes";
    pub(super) const CALLS: &str = "session-calls";
}

/// What one side states about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// The head by which the other side addresses the session in its datagrams.
    pub(crate) to: Head,
    /// Maximum size of a datagram that it accepts.
    pub(crate) packet_bytes: usize,
    /// Maximum length of a message that it accepts.
    pub(crate) longest: usize,
    /// Maximum number of outstanding calls.
    pub(crate) calls: usize,
}

impl Greeting {
    /// Encodes it.
    pub(crate) fn parameters(&self) -> Parameters {
        Parameters::from(named([
            (parameter::SESSION, u64::from(self.to.session)),
            (parameter::COOKIE, self.to.cookie),
            (parameter::PACKET, self.packet_bytes as u64),
            (parameter::LONGEST, self.longest as u64),
            (parameter::CALLS, self.calls as u64),
        ]))
    }

    /// Decodes what a peer stated.
    pub(crate) fn read(parameters: &Parameters) -> Result<Self, VerbsError> {
        let said = PeerParameters::new("a datagram session", parameters);
        let packet_bytes = said.number(parameter::PACKET, PACKET_BYTES_MIN..=PACKET_BYTES_MAX)?;
        Ok(Self {
            to: Head {
                cookie: said.word(parameter::COOKIE)?,
                session: said.number(parameter::SESSION, 0..=u16::MAX.into())? as u16,
                ..Head::default()
            },
            packet_bytes: packet_bytes & !7,
            longest: said.number(parameter::LONGEST, 1..=MAX_MESSAGE_BYTES)?,
            calls: said.number(parameter::CALLS, 1..=CALLS)?,
        })
    }

    /// Maximum length of a payload in one datagram to this side, for a sender whose own datagrams are at most `own`.
    pub(crate) fn capacity(&self, own: usize) -> usize {
        packet::capacity(self.packet_bytes.min(own))
    }
}

/// The session of a client whose server is not known yet.
#[derive(Debug)]
pub(crate) struct UnconnectedSession<D: Device> {
    pub(crate) endpoint: Shared<D>,
    pub(crate) number: u32,
    address: EndpointAddress,
    greeting: Greeting,
    joined: bool,
}

impl<D: Device> UnconnectedSession<D> {
    /// Takes a place at the endpoint, with RECEIVEs.
    ///
    /// # Errors
    /// When there are no more places, or the device has no memory.
    pub(crate) fn new(
        endpoint: &Shared<D>,
        calls: usize,
        longest: usize,
    ) -> Result<Self, VerbsError> {
        let mut held = endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        let cookie = crate::random::random(held.device())?;
        let Some(number) = held.enter(cookie) else {
            let limit = sessions_max(held.device());
            return Err(VerbsError::Limit {
                resource: "sessions of a datagram queue pair",
                asked: 1,
                available: 0,
                limit,
            });
        };
        if let Err(error) = provide(&mut held, number) {
            held.leave(number);
            return Err(error);
        }
        let greeting = Greeting {
            to: Head {
                cookie,
                session: number as u16,
                ..Head::default()
            },
            packet_bytes: held.packet_bytes(),
            longest,
            calls: calls.min(CALLS),
        };
        let address = held.address();
        drop(held);
        Ok(Self {
            endpoint: Arc::clone(endpoint),
            number,
            address,
            greeting,
            joined: false,
        })
    }

    /// The address of this side for the server.
    pub(crate) fn address(&self) -> EndpointAddress {
        self.address
    }

    /// The parameters that the server needs in addition to the address.
    pub(crate) fn parameters(&self) -> Parameters {
        self.greeting.parameters()
    }

    /// Connects it to the server; returns what the server stated, and its address.
    ///
    /// # Errors
    /// When the server's parameters are invalid.
    pub(crate) fn join(
        &mut self,
        peer: &EndpointAddress,
        parameters: &Parameters,
    ) -> Result<(Greeting, D::AddressHandle), VerbsError> {
        let theirs = Greeting::read(parameters)?;
        if theirs.calls > self.greeting.calls {
            let words = format!("it allows {} calls, more than requested", theirs.calls);
            return Err(VerbsError::Peer(words));
        }
        let mut held = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
        let route = route(&held, peer)?;
        let handle = route.handle.clone();
        held.join(self.number, route);
        drop(held);
        self.joined = true;
        Ok((theirs, handle))
    }
}

impl<D: Device> Drop for UnconnectedSession<D> {
    fn drop(&mut self) {
        if !self.joined {
            let mut held = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner);
            held.leave(self.number);
        }
    }
}

/// Posts a session's RECEIVEs, unless those of an earlier one at the same place are still posted.
fn provide<D: Device>(endpoint: &mut Endpoint<D>, number: u32) -> Result<(), VerbsError> {
    if endpoint.provided() > number as usize {
        return Ok(());
    }
    let block = endpoint.take_block()?;
    endpoint
        .provide(block)
        .map_err(|error| VerbsError::Peer(error.to_string()))
}

/// The address handle of a peer.
fn route<D: Device>(
    endpoint: &Endpoint<D>,
    peer: &EndpointAddress,
) -> Result<Route<D>, VerbsError> {
    route_in(endpoint.device(), endpoint.domain(), peer)
}

/// The address handle of a peer, for a queue pair of this domain.
pub(crate) fn route_in<D: Device>(
    device: &D,
    domain: &D::ProtectionDomain,
    peer: &EndpointAddress,
) -> Result<Route<D>, VerbsError> {
    Ok(Route {
        handle: device.create_address_handle(domain, peer)?,
        queue_pair: peer.queue_pair,
        queue_key: peer.queue_key,
    })
}
