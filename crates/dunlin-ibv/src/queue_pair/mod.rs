//! Queue pairs: creating, querying and destroying them. `modify` moves them between states; `post` and `receiver` post
//! work requests.

mod batch;
mod calls;
mod modify;
mod post;
mod receiver;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use dunlin_verbs::process::Generation;
use dunlin_verbs::{
    random, Aborter, Access, ConnectAttributes, EndpointAddress, PostError, PostErrorKind,
    QueuePair, QueuePairConfig, QueuePairState, ReceiveQueue, ReceiveRequest, SendRequest,
    Transport, Verbs, VerbsError,
};

pub(crate) use receiver::Receiver;

use crate::address::IbvAddressHandle;
use crate::completion_queue::{CqCore, IbvCompletionQueue};
use crate::context::{Core, Shared};
use crate::device::Domain;
use crate::error::{invalid, last};
use crate::events;
use crate::region::IbvRegion;
use crate::shared_receive::{IbvSharedReceiveQueue, SrqCore};
use crate::sys::extended as x;
use crate::sys::{constants as c, types};
use crate::work_table::{Kind, WorkTable};
use calls::Calls;
use post::{Handles, Sender, Way};

/// The part of a queue pair that completion queues and the event thread access.
#[derive(Debug)]
pub(crate) struct QpCore {
    pub(crate) raw: Shared<types::Qp>,
    pub(crate) number: u32,
    pub(crate) transport: Transport,
    pub(crate) domain: Arc<Domain>,
    /// The state that it was last moved to; the device may have moved it to error since.
    moved_to: AtomicU32,
    send_table: Arc<WorkTable>,
    /// `None` with a shared receive queue.
    receive_table: Option<Arc<WorkTable>>,
    _send_cq: Arc<CqCore>,
    receive_cq: Arc<CqCore>,
    shared: Option<Arc<SrqCore>>,
    /// Handles named by requests whose completions are no longer waited for.
    left: OnceLock<Handles>,
}

impl QpCore {
    fn core(&self) -> &Core {
        self.domain.device.core()
    }

    /// Moves it to error, from any thread.
    pub(crate) fn fail(&self) {
        self.send_table.set_failed();
        if let Some(table) = &self.receive_table {
            table.set_failed();
        }
        self.moved_to
            .store(QueuePairState::Error as u32, Ordering::Release);
        self.flush();
    }

    /// Moves it to error, even if it is there already: only then does soft-RoCE look for RECEIVEs to flush.
    fn flush(&self) {
        if !self.core().made_in.is_current() {
            return;
        }
        let mut attributes = modify::blank(c::QPS_ERR);
        // SAFETY: the queue pair is alive, and the attributes are valid for the call. Any state may move to error.
        unsafe { (self.core().api.modify_qp)(self.raw.0, &mut attributes, c::QP_STATE) };
    }

    /// Records that it may hold a RECEIVE of a shared queue from now on, with a part of a message in it. Soft-RoCE
    /// neither returns such a RECEIVE nor reports it.
    fn begin_to_receive(&self) {
        let connected = self.transport != Transport::UnreliableDatagram;
        if self.shared.is_some() && connected && !self.core().soft_roce {
            self.core().last_receives.watch(self.raw.0 as usize);
        }
    }

    /// Saves its completions before it loses them: those of RECEIVEs that it has taken from a shared queue are needed.
    /// From here on it takes no more of them.
    fn save_completions(&self) {
        if self.shared.is_some() {
            let core = self.core();
            self.flush();
            let last = &core.last_receives;
            last.wait(self.raw.0 as usize, || events::take(core));
            self.receive_cq.save();
        }
    }

    fn has_failed(&self) -> bool {
        let receives = self.receive_table.as_ref();
        self.send_table.failed() || receives.is_some_and(|table| table.failed())
    }
}

impl Drop for QpCore {
    fn drop(&mut self) {
        let core = self.core();
        if !core.made_in.is_current() {
            return;
        }
        self.save_completions();
        // SAFETY: made by `new`, destroyed once, before the queues that it completes into.
        let errno = unsafe { (core.api.destroy_qp)(self.raw.0) };
        if errno != 0 {
            tracing::warn!(device = %core.nic, errno, "ibv_destroy_qp failed");
        }
        core.tables.remove(&self.send_table);
        if let Some(table) = &self.receive_table {
            core.tables.remove(table);
        }
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct IbvQueuePair {
    core: Arc<QpCore>,
    sender: Sender,
    receiver: Option<Receiver>,
    post_receive: types::PostReceive,
    queue_key: u32,
    packet_sequence: u32,
    made_in: Generation,
}

impl Drop for IbvQueuePair {
    fn drop(&mut self) {
        // Another thread may be about to move the queue pair to error, and then destroys it.
        let _ = self.core.left.set(self.sender.take_handles());
    }
}

fn kind(transport: Transport) -> u32 {
    match transport {
        Transport::ReliableConnection => c::QPT_RC,
        Transport::UnreliableConnection => c::QPT_UC,
        Transport::UnreliableDatagram => c::QPT_UD,
    }
}

fn random_u32() -> Result<u32, VerbsError> {
    let number = random::number().map_err(|source| VerbsError::System {
        call: "getrandom for a packet sequence number",
        source,
    })?;
    Ok(number as u32)
}

/// Creates a queue pair in the library, with its extended calls if the provider has them; null if the library refuses.
pub(crate) fn create(
    core: &Core,
    domain: *mut types::Pd,
    transport: Transport,
    (send_cq, receive_cq, srq): (*mut types::Cq, *mut types::Cq, *mut types::Srq),
    capacity: types::QpCapacity,
) -> (*mut types::Qp, Option<Calls>) {
    if let Some(made) = create_for_calls(
        core,
        domain,
        transport,
        (send_cq, receive_cq, srq),
        capacity,
    ) {
        return made;
    }
    let mut init = types::QpInit {
        user: std::ptr::null_mut(),
        send_cq,
        receive_cq,
        srq,
        capacity,
        kind: kind(transport),
        signal_all: 0,
    };
    // SAFETY: callers pass a live domain and live queues of this context; `init` is valid for the call.
    (unsafe { (core.api.create_qp)(domain, &mut init) }, None)
}

/// The same for posting by extended calls; `None` if the provider has none for this transport.
fn create_for_calls(
    core: &Core,
    domain: *mut types::Pd,
    transport: Transport,
    (send_cq, receive_cq, srq): (*mut types::Cq, *mut types::Cq, *mut types::Srq),
    capacity: types::QpCapacity,
) -> Option<(*mut types::Qp, Option<Calls>)> {
    let make = core.extended?.create_qp_ex()?;
    core.api.qp_to_qp_ex?;
    let atomics = core.attributes.transports.rc.contains(Verbs::ATOMIC);
    // SAFETY: numbers and pointers, for which zero is a valid value.
    let mut init: x::QpInitEx = unsafe { std::mem::zeroed() };
    (init.send_cq, init.receive_cq, init.srq) = (send_cq, receive_cq, srq);
    init.capacity = capacity;
    init.kind = kind(transport);
    init.mask = x::QP_INIT_PD | x::QP_INIT_SEND_OPERATIONS;
    init.pd = domain;
    init.send_operations = calls::operations(transport, atomics);
    // SAFETY: callers pass a live domain and live queues of this context; `init` is valid for the call.
    let raw = unsafe { make(core.context.0, &mut init) };
    if raw.is_null() {
        return None;
    }
    let calls = Calls::of(core, raw, transport);
    if calls.is_none() {
        // SAFETY: just made and not used.
        unsafe { (core.api.destroy_qp)(raw) };
        return None;
    }
    Some((raw, calls))
}

impl IbvQueuePair {
    pub(crate) fn new(
        domain: &Arc<Domain>,
        config: &QueuePairConfig<'_, IbvCompletionQueue, IbvSharedReceiveQueue>,
    ) -> Result<Self, VerbsError> {
        let core = domain.device.core();
        let operations = core.operations();
        let (Some(post_send), Some(post_receive)) = (operations.post_send, operations.post_receive)
        else {
            return Err(invalid(
                "device",
                format!(
                    "the provider of {} does not implement all required calls",
                    core.nic
                ),
            ));
        };
        let (own, shared) = match config.receive_queue {
            ReceiveQueue::Own(requests) | ReceiveQueue::OwnEmpty(requests) => {
                (requests.max(1), None)
            }
            ReceiveQueue::Shared(queue) => {
                if !Arc::ptr_eq(&queue.core().domain, domain) {
                    return Err(invalid(
                        "receive_queue",
                        "belongs to another protection domain",
                    ));
                }
                queue.core().join(config.transport)?;
                (0, Some(Arc::clone(queue.core())))
            }
        };
        let (send_cq, receive_cq) = (
            config.send_completions.core(),
            config.receive_completions.core(),
        );
        let (sends, segments) = (config.send_requests.max(1), config.segments.max(1));
        // Random numbers first: there is nothing to undo if they fail.
        let (sequence, key) = (random_u32()? & 0x00ff_ffff, random_u32()? & 0x7fff_ffff);
        let srq = shared
            .as_ref()
            .map_or(std::ptr::null_mut(), |srq| srq.raw.0);
        let queues = (send_cq.raw.0, receive_cq.raw.0, srq);
        let capacity = types::QpCapacity {
            send_wr: sends as u32,
            receive_wr: own as u32,
            send_sge: segments as u32,
            receive_sge: if own == 0 { 0 } else { segments as u32 },
            inline_data: config.inline_bytes as u32,
        };
        let (raw, calls) = create(core, domain.raw.0, config.transport, queues, capacity);
        if raw.is_null() {
            return Err(last(
                "ibv_create_qp",
                format!(
                    "{} on {} with {sends} sends, {own} RECEIVEs, {segments} segments and {} inline bytes; ENOMEM: the \
                     device's resources or RLIMIT_MEMLOCK are exhausted, use fewer or smaller queue pairs; EINVAL: the \
                     provider does not support this combination",
                    config.transport, core.nic, config.inline_bytes
                ),
            ));
        }
        let tables = core.tables.insert(Kind::Send, sends).and_then(|send| {
            if own == 0 {
                return Some((send, None));
            }
            match core.tables.insert(Kind::Receive, own) {
                Some(receive) => Some((send, Some(receive))),
                None => {
                    core.tables.remove(&send);
                    None
                }
            }
        });
        let Some((send_table, receive_table)) = tables else {
            // SAFETY: just made and not used.
            unsafe { (core.api.destroy_qp)(raw) };
            return Err(invalid("queue pairs", "too many queues on this device"));
        };
        if let (Some(table), Transport::UnreliableDatagram) = (&receive_table, config.transport) {
            table.set_datagrams();
        }
        // SAFETY: just made.
        let number = unsafe { (*raw).number };
        let shared_core = Arc::new(QpCore {
            raw: Shared(raw),
            number,
            transport: config.transport,
            domain: Arc::clone(domain),
            moved_to: AtomicU32::new(QueuePairState::Reset as u32),
            send_table: Arc::clone(&send_table),
            receive_table: receive_table.clone(),
            _send_cq: Arc::clone(send_cq),
            receive_cq: Arc::clone(receive_cq),
            shared,
            left: OnceLock::new(),
        });
        if shared_core.shared.is_some() {
            receive_cq.share();
        }
        send_cq.join(&shared_core);
        if !Arc::ptr_eq(send_cq, receive_cq) {
            receive_cq.join(&shared_core);
        }
        Ok(Self {
            sender: Sender::new(
                (send_table, domain),
                calls.map_or(Way::List(post_send), Way::Calls),
                config.transport,
                &core.attributes,
                segments,
                config.inline_bytes,
            ),
            receiver: receive_table.map(|table| Receiver::new(table, domain, segments)),
            core: shared_core,
            post_receive,
            queue_key: key,
            packet_sequence: sequence,
            made_in: core.made_in,
        })
    }

    /// The state as far as it is known without asking the kernel.
    fn known_state(&self) -> QueuePairState {
        QueuePairState::from_number(self.core.moved_to.load(Ordering::Acquire))
            .unwrap_or(QueuePairState::Error)
    }
}

impl QueuePair for IbvQueuePair {
    type Region = IbvRegion;
    type AddressHandle = IbvAddressHandle;
    type Mapped = dunlin_verbs::NotMapped;

    fn number(&self) -> u32 {
        self.core.number
    }

    fn transport(&self) -> Transport {
        self.core.transport
    }

    fn state(&self) -> QueuePairState {
        let known = self.known_state();
        if self.is_known_failed() || !self.core.core().made_in.is_current() {
            return QueuePairState::Error;
        }
        if known == QueuePairState::Reset {
            return known;
        }
        modify::query(&self.core).unwrap_or(known)
    }

    fn is_known_failed(&self) -> bool {
        let connected = self.core.transport == Transport::ReliableConnection;
        self.known_state() == QueuePairState::Error || connected && self.core.has_failed()
    }

    fn address(&self) -> EndpointAddress {
        let core = self.core.core();
        let port = core.link.port();
        EndpointAddress {
            gid: port.gid.gid,
            lid: port.lid,
            mtu_bytes: port.mtu_bytes as u32,
            queue_pair: self.core.number,
            packet_sequence: self.packet_sequence,
            queue_key: match self.core.transport {
                Transport::UnreliableDatagram => self.queue_key,
                _ => 0,
            },
            // The number of the peer's READs and atomics that are answered at a time: a queue pair that has more in
            // flight than its peer answers fails with an invalid request.
            token: u64::from(core.reads_answered),
        }
    }

    fn to_init(&mut self, access: Access) -> Result<(), VerbsError> {
        self.core.core().made_in.check()?;
        modify::to_init(self, access)
    }

    fn to_ready_to_receive(
        &mut self,
        remote: Option<&EndpointAddress>,
        attributes: ConnectAttributes,
    ) -> Result<(), VerbsError> {
        self.core.core().made_in.check()?;
        modify::to_ready_to_receive(self, remote, attributes)
    }

    fn to_ready_to_send(&mut self) -> Result<(), VerbsError> {
        self.core.core().made_in.check()?;
        modify::to_ready_to_send(self)
    }

    fn to_send_queue_drained(&mut self) -> Result<(), VerbsError> {
        self.core.core().made_in.check()?;
        modify::to_send_queue_drained(self)
    }

    fn to_error(&mut self) {
        self.core.fail();
    }

    fn aborter(&self) -> Option<Aborter> {
        let core = Arc::downgrade(&self.core);
        Some(Box::new(move || {
            if let Some(core) = core.upgrade() {
                core.fail();
            }
        }))
    }

    fn to_reset(&mut self) {
        if self.core.core().made_in.is_current() {
            modify::to_reset(self);
        }
    }

    fn post_send(
        &mut self,
        requests: &[SendRequest<'_, IbvRegion, IbvAddressHandle>],
    ) -> Result<(), PostError> {
        self.made_in.check().map_err(PostError::forked)?;
        let state = self.known_state();
        if !state.takes_sends() && !requests.is_empty() {
            return Err(PostError {
                index: 0,
                kind: PostErrorKind::State(state),
            });
        }
        self.sender.post(self.core.raw.0, requests)
    }

    fn post_receive(
        &mut self,
        requests: &[ReceiveRequest<'_, IbvRegion>],
    ) -> Result<(), PostError> {
        self.made_in.check().map_err(PostError::forked)?;
        let refused = |kind| Err(PostError { index: 0, kind });
        let Some(receiver) = &mut self.receiver else {
            return refused(PostErrorKind::Verb(self.core.transport));
        };
        if QueuePairState::Reset as u32 == self.core.moved_to.load(Ordering::Acquire) {
            return refused(PostErrorKind::State(QueuePairState::Reset));
        }
        let (post, raw) = (self.post_receive, self.core.raw.0);
        let result = receiver.post(requests, |first, bad| {
            // SAFETY: the queue pair is alive, and `first` is a list that is valid for the call.
            unsafe { post(raw, first, bad) }
        });
        if self.core.has_failed() && self.core.transport == Transport::ReliableConnection {
            self.core.flush();
        }
        result
    }
}
