//! The handlers of a machine: each finds the service, and answers at once if the log is in memory, or otherwise when
//! the reported changes are on the disk.

use std::sync::{Arc, OnceLock};

use dunlin_rpc::{HandlerError, OwnedResponder, ServerBuilder};
use dunlin_verbs::thread;

use super::catalogue::Catalogue;
use super::{Service, CATALOGUE, PEER, TRANSACT};
use crate::effort;
use crate::membership::peer::{PeerAnswer, PeerRequest};
use crate::membership::Epoch;
use crate::wire::{Answer, Body, Refusal, Request, Response};

/// A request that could not be decoded.
const MALFORMED: u32 = 1;
/// The tables are still being created.
const NOT_READY: u32 = 2;

/// Adds the handlers to a server. `defers`: the log is on a disk.
pub(super) fn on(
    builder: ServerBuilder,
    (service, defers): (&Arc<OnceLock<Service>>, bool),
    catalogue: &Catalogue,
) -> ServerBuilder {
    let (ready, incarnation) = (Arc::clone(service), catalogue.incarnation);
    let (known, described) = (Arc::clone(service), catalogue.clone());
    let asked = Arc::clone(service);
    let builder = builder.handle(CATALOGUE, move |_, reply| {
        let service = known.get().ok_or_else(not_ready)?;
        let mut described = described.clone();
        if let Some(member) = &service.member {
            described.replicated = true;
            described.configuration = member.serving();
        }
        reply.write(&described.encode())
    });
    if defers {
        return builder
            .handle_deferred(TRANSACT, move |request, responder| {
                let done = ready.get().ok_or_else(not_ready).and_then(|service| {
                    let (bytes, needed) = transact(service, incarnation, request.payload())?;
                    Ok((service, bytes, needed))
                });
                later(done, responder);
            })
            .handle_deferred(PEER, move |request, responder| {
                let done = asked.get().ok_or_else(not_ready).and_then(|service| {
                    let bytes = peer(service, request.payload())?;
                    let needed = service.disk.as_ref().map_or(0, |disk| disk.appended());
                    Ok((service, bytes, needed))
                });
                later(done, responder);
            });
    }
    builder
        .handle(TRANSACT, move |request, reply| {
            let service = ready.get().ok_or_else(not_ready)?;
            reply.write(&transact(service, incarnation, request.payload())?.0)
        })
        .handle(PEER, move |request, reply| {
            let service = asked.get().ok_or_else(not_ready)?;
            reply.write(&peer(service, request.payload())?)
        })
}

/// Sends the answer when the changes that it reports are on the disk.
fn later(done: Result<(&Service, Vec<u8>, u64), HandlerError>, responder: OwnedResponder) {
    match done {
        Ok((service, bytes, needed)) => match &service.disk {
            Some(disk) => disk.answer(needed, responder, bytes),
            None => responder.reply(bytes),
        },
        Err(error) => responder.fail(error),
    }
}

fn not_ready() -> HandlerError {
    HandlerError::new(NOT_READY, "the tables are being created: try again")
}

fn malformed(error: &dyn std::fmt::Display) -> HandlerError {
    HandlerError::new(MALFORMED, error.to_string())
}

/// The first eight bytes, and the rest.
fn split(payload: &[u8]) -> Result<(u64, &[u8]), HandlerError> {
    let split = payload.split_first_chunk::<8>();
    let (first, rest) = split.ok_or_else(|| malformed(&"fewer than 8 bytes"))?;
    Ok((u64::from_le_bytes(*first), rest))
}

/// The answer to a request, and the log position that must be on the disk before it is sent.
fn transact(
    service: &Service,
    incarnation: u64,
    payload: &[u8],
) -> Result<(Vec<u8>, u64), HandlerError> {
    let (fence, request) = split(payload)?;
    let request = Request::decode(request).map_err(|error| malformed(&error))?;
    let refused = match &service.member {
        None if fence != incarnation => Some(Refusal::Restarted),
        // The outcome of a transaction may be reported without a lease.
        Some(member) if request.body != Body::Outcome && !member.has_lease() => {
            Some(Refusal::Epoch)
        }
        _ => None,
    };
    let epoch = match &service.member {
        None => Epoch::FIXED,
        Some(member) => member.epoch_of(fence),
    };
    let mut needed = 0;
    let answer = match refused {
        None => {
            let participants = &service.participants;
            let share = (request.transaction.coordinator % participants.len() as u64) as usize;
            let mut participant = thread::lock(&participants[share]);
            let answer = participant.handle(&request, epoch);
            if let Some(charge) = service.charge {
                // Charged while it holds the lock, so that others wait as long as they would in reality.
                effort::of_step(&request.body, &answer.response, charge);
            }
            if let Some(disk) = &service.disk {
                needed = disk.needed(&request.body, participant.appended());
            }
            answer
        }
        Some(refusal) => Answer {
            transaction: request.transaction,
            step: request.step,
            response: Response::Refused(refusal),
        },
    };
    let mut bytes = Vec::with_capacity(128);
    answer.encode(&mut bytes);
    Ok((bytes, needed))
}

fn peer(service: &Service, payload: &[u8]) -> Result<Vec<u8>, HandlerError> {
    let (incarnation, request) = split(payload)?;
    let request = PeerRequest::decode(request).map_err(|error| malformed(&error))?;
    let answer = match &service.member {
        Some(member) => member.answer(incarnation, &request),
        None => PeerAnswer::No,
    };
    let mut bytes = Vec::new();
    answer.encode(&mut bytes);
    Ok(bytes)
}
