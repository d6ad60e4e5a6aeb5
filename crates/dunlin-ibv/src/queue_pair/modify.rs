//! The state machine of a queue pair, by `ibv_modify_qp`.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dunlin_verbs::{
    Access, ConnectAttributes, EndpointAddress, QueuePair, QueuePairState as S, Transport,
    VerbsError,
};

use super::{IbvQueuePair, QpCore};
use crate::address::{route, shown};
use crate::error::returned;
use crate::port::mtu_code;
use crate::sys::{constants as c, types};
use crate::timers::{receiver_not_ready_code, timeout_code};

/// How long a send queue may take to drain before resuming it is an error; requests that were started complete sooner.
const LONGEST_DRAIN: Duration = Duration::from_secs(1);

/// Soft-RoCE treats seven retries as unlimited, and so never detects that a peer or a link is gone. One less, of at
/// least 268 ms each: on an overloaded machine its answers come late.
const SOFT_ROCE_RETRIES: u8 = 6;
const SOFT_ROCE_TIMEOUT: u8 = 16;

/// Attributes that contain only the state.
pub(super) fn blank(state: u32) -> types::QpAttributes {
    // SAFETY: plain numbers, for which zero is a valid value.
    let mut attributes: types::QpAttributes = unsafe { std::mem::zeroed() };
    attributes.state = state;
    attributes
}

/// The state as reported by the kernel.
pub(super) fn query(core: &QpCore) -> Option<S> {
    let mut attributes = blank(0);
    // SAFETY: plain numbers and pointers, for which zero is a valid value.
    let mut init: types::QpInit = unsafe { std::mem::zeroed() };
    let api = &core.core().api;
    // SAFETY: the queue pair is alive, and both places have space for the answer.
    let errno = unsafe { (api.query_qp)(core.raw.0, &mut attributes, c::QP_STATE, &mut init) };
    if errno != 0 {
        return None;
    }
    S::from_number(attributes.state)
}

fn check(pair: &IbvQueuePair, to: S) -> Result<(), VerbsError> {
    let from = pair.state();
    if from.may_move(to, pair.core.transport) {
        return Ok(());
    }
    Err(VerbsError::Transition {
        queue_pair: pair.core.number,
        from,
        to,
    })
}

fn apply(
    pair: &IbvQueuePair,
    to: S,
    mut attributes: types::QpAttributes,
    mask: i32,
    what: impl FnOnce() -> String,
) -> Result<(), VerbsError> {
    let api = &pair.core.core().api;
    // SAFETY: the queue pair is alive, and the attributes are valid for the call.
    let errno = unsafe { (api.modify_qp)(pair.core.raw.0, &mut attributes, mask) };
    if errno != 0 {
        return Err(returned("ibv_modify_qp", errno, what()));
    }
    pair.core.moved_to.store(to as u32, Ordering::Release);
    Ok(())
}

pub(super) fn to_init(pair: &mut IbvQueuePair, access: Access) -> Result<(), VerbsError> {
    check(pair, S::Init)?;
    let mut attributes = blank(c::QPS_INIT);
    let number = pair.core.core().link.port().number;
    attributes.port = number;
    let mut mask = c::QP_STATE | c::QP_PKEY_INDEX | c::QP_PORT;
    if pair.core.transport == Transport::UnreliableDatagram {
        attributes.queue_key = pair.queue_key;
        mask |= c::QP_QUEUE_KEY;
    } else {
        // The bits of the verbs layer are the library's. Providers refuse access flags that UC does not support.
        let allowed = match pair.core.transport {
            Transport::UnreliableConnection => Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            _ => Access::all(),
        };
        attributes.access = (access & allowed).bits();
        mask |= c::QP_ACCESS;
    }
    apply(pair, S::Init, attributes, mask, || {
        format!("to Init on port {number}")
    })
}

pub(super) fn to_ready_to_receive(
    pair: &mut IbvQueuePair,
    remote: Option<&EndpointAddress>,
    connect: ConnectAttributes,
) -> Result<(), VerbsError> {
    check(pair, S::ReadyToReceive)?;
    let core = pair.core.core();
    let mut attributes = blank(c::QPS_RTR);
    if pair.core.transport == Transport::UnreliableDatagram {
        return apply(pair, S::ReadyToReceive, attributes, c::QP_STATE, || {
            "to ReadyToReceive".to_owned()
        });
    }
    let Some(remote) = remote else {
        return Err(VerbsError::Address(
            "a connected queue pair needs its peer's address".to_owned(),
        ));
    };
    attributes.address = route(core, remote, connect.traffic_class)?;
    let mtu = core.link.port().mtu_bytes.min(remote.mtu_bytes as usize);
    attributes.path_mtu = mtu_code(mtu);
    attributes.destination = remote.queue_pair;
    attributes.receive_psn = remote.packet_sequence;
    let mut mask =
        c::QP_STATE | c::QP_ADDRESS | c::QP_PATH_MTU | c::QP_DESTINATION | c::QP_RECEIVE_PSN;
    if pair.core.transport == Transport::ReliableConnection {
        attributes.max_reads_answered = core.reads_answered;
        attributes.receiver_not_ready_timer =
            receiver_not_ready_code(connect.receiver_not_ready_timer_ns);
        mask |= c::QP_READS_ANSWERED | c::QP_RNR_TIMER;
    }
    apply(pair, S::ReadyToReceive, attributes, mask, || {
        format!(
            "to ReadyToReceive, path MTU {mtu}, {}; ETIMEDOUT, EHOSTUNREACH or ENETUNREACH: the interface of the GID \
             has no route to the peer",
            shown(core, remote)
        )
    })?;
    pair.core.begin_to_receive();
    pair.sender.connect = connect;
    // The peer wrote it: with zero, no READ would ever be sent, so an invalid value counts as one.
    let answers = u8::try_from(remote.token).unwrap_or(1);
    pair.sender.peer_answers = answers.max(1);
    Ok(())
}

pub(super) fn to_ready_to_send(pair: &mut IbvQueuePair) -> Result<(), VerbsError> {
    check(pair, S::ReadyToSend)?;
    let core = pair.core.core();
    let mut attributes = blank(c::QPS_RTS);
    let mut mask = c::QP_STATE;
    // From any other state only the state is set.
    if pair.known_state() == S::ReadyToReceive {
        attributes.send_psn = pair.packet_sequence;
        mask |= c::QP_SEND_PSN;
        if pair.core.transport == Transport::ReliableConnection {
            let connect = pair.sender.connect;
            attributes.timeout = timeout_code(connect.timeout_ns);
            attributes.retries = connect.retry_count.min(7);
            if core.soft_roce && attributes.retries == 7 {
                attributes.retries = SOFT_ROCE_RETRIES;
                attributes.timeout = attributes.timeout.max(SOFT_ROCE_TIMEOUT);
            }
            attributes.receiver_not_ready_retries = connect.receiver_not_ready_retries.min(7);
            attributes.max_reads_initiated = core.reads_initiated.min(pair.sender.peer_answers);
            mask |= c::QP_TIMEOUT | c::QP_RETRIES | c::QP_RNR_RETRIES | c::QP_READS_INITIATED;
        }
    }
    let was_drained = pair.known_state() == S::SendQueueDrained;
    let end = Instant::now() + LONGEST_DRAIN;
    loop {
        let result = apply(pair, S::ReadyToSend, attributes, mask, || {
            "to ReadyToSend".to_owned()
        });
        // Soft-RoCE refuses while it is still draining.
        if result.is_ok() || !was_drained || Instant::now() > end {
            return result;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

pub(super) fn to_send_queue_drained(pair: &mut IbvQueuePair) -> Result<(), VerbsError> {
    check(pair, S::SendQueueDrained)?;
    let attributes = blank(c::QPS_SQD);
    apply(pair, S::SendQueueDrained, attributes, c::QP_STATE, || {
        "to SendQueueDrained".to_owned()
    })
}

pub(super) fn to_reset(pair: &mut IbvQueuePair) {
    pair.core.save_completions();
    let attributes = blank(c::QPS_RESET);
    let reset = apply(pair, S::Reset, attributes, c::QP_STATE, || {
        "to Reset".to_owned()
    });
    if let Err(error) = reset {
        // Only a device that is gone refuses; its queue pair is unusable in any state.
        tracing::warn!(%error, "cannot reset queue pair {}", pair.core.number);
        pair.core.fail();
        return;
    }
    pair.core.send_table.reset();
    if let Some(table) = &pair.core.receive_table {
        table.reset();
    }
}
