//! Posting to a queue pair: checks, charges and the doorbell.

use dunlin_verbs::{
    Access, Operation, Payload, PostError, PostErrorKind, QueuePairState, ReceiveRequest,
    SendRequest, Transport,
};

use crate::context::{self, OUTSIDE};
use crate::event::Event;
use crate::memory::LINE;
use crate::work::{Element, Inline, Segs, Target, Verb};
use crate::world::World;

use super::{shared_receive, SimAddressHandle, SimQueuePair, SimRegion, MAX_MESSAGE_BYTES};

type Request<'a> = SendRequest<'a, SimRegion, SimAddressHandle>;

/// Bytes of the parts of a work queue element: the control segment, the destination of a datagram (address vector) and
/// of other requests (remote address), a data segment, and the header of an inline payload.
const CONTROL_BYTES: usize = 16;
const VECTOR_BYTES: usize = 48;
const ADDRESS_BYTES: usize = 16;
const DATA_BYTES: usize = 16;
const INLINE_HEAD_BYTES: usize = 4;

/// Bytes of the work queue element of a request.
fn element_bytes(request: &Request<'_>) -> usize {
    let to = match (&request.destination, &request.operation) {
        (Some(_), _) => VECTOR_BYTES,
        (None, Operation::Send { .. }) => 0,
        (None, Operation::CompareAndSwap { .. } | Operation::FetchAndAdd { .. }) => {
            ADDRESS_BYTES + 16
        }
        (None, _) => ADDRESS_BYTES,
    };
    let payload = match request.payload {
        Payload::Inline(bytes) => INLINE_HEAD_BYTES + bytes.len(),
        Payload::Segments(segments) => DATA_BYTES * segments.len(),
    };
    CONTROL_BYTES + to + payload
}

/// Posts requests and rings the doorbell once.
pub(super) fn send(pair: &mut SimQueuePair, requests: &[Request<'_>]) -> Result<(), PostError> {
    if requests.is_empty() {
        return Ok(());
    }
    let mut world = pair.inner.world(pair.host);
    let place = pair.place;
    let state = world.pairs[place as usize].state;
    if !state.takes_sends() {
        return Err(PostError {
            index: 0,
            kind: PostErrorKind::State(state),
        });
    }
    // A single request is pushed to the NIC with its doorbell if it is short enough; the elements of a list are
    // fetched.
    let blueflame = world.hosts[usize::from(pair.host)]
        .nic
        .parameters
        .blueflame_bytes as usize;
    let alone = requests.len() == 1;
    let mut posted = 0;
    let mut result = Ok(());
    for (index, request) in requests.iter().enumerate() {
        match element(&world, pair, request) {
            Ok(mut element) => {
                let bytes = element_bytes(request);
                element.pushed = alone && bytes <= blueflame;
                element.lines = bytes.div_ceil(LINE as usize) as u16;
                let state = &mut world.pairs[place as usize];
                element.index = state.posted;
                state.posted += 1;
                state.sends.push_back(element);
                posted += 1;
            }
            Err(kind) => {
                result = Err(PostError { index, kind });
                break;
            }
        }
    }
    if pair.inner.caller().is_some() {
        let prices = &world.hosts[usize::from(pair.host)].parameters;
        context::charge(prices.post_send + prices.post_element * posted + prices.doorbell);
    }
    if matches!(
        state,
        QueuePairState::Error | QueuePairState::SendQueueError
    ) {
        world.flush_sends(place);
    } else if posted > 0 {
        let at = pair.inner.time(&world) + world.hosts[usize::from(pair.host)].nic.parameters.mmio;
        let state = &world.pairs[place as usize];
        let (stamp, rung) = (state.stamp, state.posted as u32);
        world.queue.push(
            at,
            pair.host,
            Event::Doorbell {
                qp: place,
                stamp,
                rung,
                thread: pair.inner.caller_on(pair.host).unwrap_or(OUTSIDE),
            },
        );
    }
    result
}

/// Checks a request and builds its element.
fn element(
    world: &World,
    pair: &SimQueuePair,
    request: &Request<'_>,
) -> Result<Element, PostErrorKind> {
    let state = &world.pairs[pair.place as usize];
    let (transport, limits) = (pair.transport, state.limits);
    let datagram = transport == Transport::UnreliableDatagram;
    let wrong = PostErrorKind::Verb(transport);
    if datagram != request.destination.is_some() {
        return Err(wrong);
    }
    let none = (0, 0);
    let (verb, immediate, (address, key), operands) = match request.operation {
        Operation::Send { immediate } => (Verb::Send, immediate, none, [0; 2]),
        Operation::Write { remote, immediate } if !datagram => (
            Verb::Write,
            immediate,
            (remote.address, remote.key.0),
            [0; 2],
        ),
        _ if transport != Transport::ReliableConnection => return Err(wrong),
        Operation::Read { remote } => (Verb::Read, None, (remote.address, remote.key.0), [0; 2]),
        Operation::CompareAndSwap {
            remote,
            compare,
            swap,
        } => (
            Verb::CompareAndSwap,
            None,
            (remote.address, remote.key.0),
            [compare, swap],
        ),
        Operation::FetchAndAdd { remote, add } => (
            Verb::FetchAndAdd,
            None,
            (remote.address, remote.key.0),
            [add, 0],
        ),
        Operation::Write { .. } => return Err(wrong),
    };
    if (state.posted - state.retired) as usize >= limits.send_requests {
        return Err(PostErrorKind::Full {
            limit: limits.send_requests,
        });
    }
    let needed = if verb.fetches() {
        Access::LOCAL_WRITE
    } else {
        Access::empty()
    };
    let (segs, inline) = match request.payload {
        Payload::Inline(_) if verb.fetches() => return Err(wrong),
        Payload::Inline(bytes) if bytes.len() > limits.inline_bytes => {
            return Err(PostErrorKind::Inline {
                bytes: bytes.len(),
                limit: limits.inline_bytes,
            });
        }
        Payload::Inline(bytes) => (Segs::default(), Inline::new(bytes)),
        Payload::Segments(segments) if segments.len() > limits.segments => {
            return Err(PostErrorKind::Segments {
                count: segments.len(),
                limit: limits.segments,
            });
        }
        Payload::Segments(segments) => {
            let segs = shared_receive::convert(world, pair.host, state.domain, segments, needed)?;
            (segs, Inline::None)
        }
    };
    let length = request.payload.length();
    let most = if datagram {
        world.hosts[usize::from(pair.host)].nic.parameters.mtu_bytes as usize
    } else {
        MAX_MESSAGE_BYTES
    };
    if length > most {
        return Err(PostErrorKind::Length {
            bytes: length,
            limit: most,
        });
    }
    let atomic = matches!(verb, Verb::CompareAndSwap | Verb::FetchAndAdd);
    if atomic && (length != 8 || segs.all().len() != 1) {
        return Err(wrong);
    }
    let target = request.destination.map(|destination| Target {
        host: destination.handle.host,
        priority: destination.handle.priority,
        number: destination.queue_pair,
        key: destination.queue_key,
    });
    Ok(Element {
        id: request.id,
        verb,
        flags: request.flags,
        immediate,
        address,
        key,
        length: length as u32,
        operands,
        segs,
        inline,
        target,
        index: 0,
        pushed: false,
        lines: 1,
        at: 0,
        first_psn: 0,
        packets: 0,
        answered: 0,
    })
}

/// Posts RECEIVEs to the queue pair's own queue.
pub(super) fn receive(
    pair: &mut SimQueuePair,
    requests: &[ReceiveRequest<'_, SimRegion>],
) -> Result<(), PostError> {
    let mut world = pair.inner.world(pair.host);
    let place = pair.place;
    let (state, queue) = {
        let state = &world.pairs[place as usize];
        (state.state, state.receives)
    };
    if !state.takes_receives() {
        return Err(PostError {
            index: 0,
            kind: PostErrorKind::State(state),
        });
    }
    if !pair.own_receives && !requests.is_empty() {
        return Err(PostError {
            index: 0,
            kind: PostErrorKind::Verb(pair.transport),
        });
    }
    shared_receive::charge(&pair.inner, &world, pair.host, requests.len());
    for (index, request) in requests.iter().enumerate() {
        shared_receive::push(&mut world, queue, request)
            .map_err(|kind| PostError { index, kind })?;
    }
    if state == QueuePairState::Error {
        world.flush_receives(place);
    }
    Ok(())
}
