//! Logical queue pairs, as seen by their owners: states and posting.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use dunlin_verbs::{
    Aborter, Access, ConnectAttributes, Device, EndpointAddress, NotMapped, Operation, PostError,
    PostErrorKind, QueuePair, QueuePairState, ReceiveRequest, SendFlags, SendRequest, Transport,
    VerbsError,
};

use super::core::{Core, Handle};
use super::pair::{Cause, Posted, Shared};
use super::region::FlorRegion;
use super::work::{payload_of, Bytes, Limits};
use crate::connection::Counters;

const RC: Transport = Transport::ReliableConnection;

/// A queue pair made of queue pairs, with RC's service whatever the underlying transport.
#[derive(Debug)]
pub struct FlorQueuePair<D: Device> {
    device: Arc<Handle<D>>,
    shared: Arc<Shared<D>>,
    limits: Limits,
    send_requests: usize,
    /// Number of sends posted so far.
    posted: u32,
}

type SendOf<'a, D> =
    SendRequest<'a, FlorRegion<<D as Device>::Region>, <D as Device>::AddressHandle>;

impl<D: Device> FlorQueuePair<D> {
    pub(crate) fn new(
        device: &Arc<Handle<D>>,
        shared: Arc<Shared<D>>,
        limits: Limits,
        send_requests: usize,
    ) -> Self {
        Self {
            device: Arc::clone(device),
            shared,
            limits,
            send_requests: send_requests.max(1),
            posted: 0,
        }
    }

    fn core(&self) -> &Core<D> {
        self.device.core()
    }

    /// Counters of its connection.
    pub fn counters(&self) -> Counters {
        self.shared.engine().counters()
    }

    /// Moves the underlying queue pair in use to Error, as a failure of the device would.
    pub fn fail_primary(&self) {
        self.shared.engine().fail_primary();
    }

    fn check_move(&self, to: QueuePairState) -> Result<(), VerbsError> {
        self.core().made_in.check()?;
        let from = self.shared.state();
        if from.may_move(to, RC) {
            return Ok(());
        }
        Err(VerbsError::Transition {
            queue_pair: self.shared.number,
            from,
            to,
        })
    }

    fn reset(&mut self) {
        if !self.core().made_in.is_current() {
            return;
        }
        let shared = &self.shared;
        let mut engine = shared.engine();
        shared.set_state(QueuePairState::Reset);
        shared.forget_cause();
        dunlin_verbs::thread::hold(|| engine.reset(self.core().now_ns()));
        drop(engine);
        shared.send_completions.forget(shared.number);
        shared.receive_completions.forget(shared.number);
        if !shared.shares_receives {
            while shared.receives.pop().is_some() {}
        }
        shared.retired.store(self.posted, Ordering::Release);
    }

    /// Checks a request and keeps what its payload names.
    fn check(&self, request: &SendOf<'_, D>) -> Result<Bytes<D::Region>, PostErrorKind> {
        if request.destination.is_some() {
            return Err(PostErrorKind::Verb(RC));
        }
        let atomic = matches!(
            request.operation,
            Operation::CompareAndSwap { .. } | Operation::FetchAndAdd { .. }
        );
        let access = match request.operation {
            Operation::Send { .. } | Operation::Write { .. } => Access::empty(),
            _ => Access::LOCAL_WRITE,
        };
        let (payload, limits) = (&request.payload, &self.limits);
        let bytes = payload_of(payload, limits, self.shared.domain, access)?;
        if atomic && !(bytes.len() == 8 && bytes.is_one_piece()) {
            return Err(PostErrorKind::Verb(RC));
        }
        Ok(bytes)
    }

    fn prepare(&mut self, request: &SendOf<'_, D>) -> Result<Posted<D::Region>, PostErrorKind> {
        let state = self.shared.state();
        if !state.takes_sends() {
            return Err(PostErrorKind::State(state));
        }
        let bytes = self.check(request)?;
        let limit = self.send_requests;
        let retired = self.shared.retired.load(Ordering::Acquire);
        if self.posted.wrapping_sub(retired) as usize >= limit {
            return Err(PostErrorKind::Full { limit });
        }
        let entry = self.posted;
        self.posted = entry.wrapping_add(1);
        let flags = request.flags;
        Ok(Posted {
            id: request.id,
            operation: request.operation,
            signaled: flags.contains(SendFlags::SIGNALED),
            solicited: flags.contains(SendFlags::SOLICITED),
            fenced: flags.contains(SendFlags::FENCE),
            bytes,
            entry,
            answered: false,
        })
    }
}

/// The address of a logical queue pair: that of its first underlying queue pair, whose number is in the field of the
/// queue key, which no connected queue pair uses.
fn outer(number: u32, inner: EndpointAddress) -> EndpointAddress {
    EndpointAddress {
        queue_pair: number,
        queue_key: inner.queue_pair,
        ..inner
    }
}

/// The address of the first underlying queue pair.
pub(crate) fn inner(address: &EndpointAddress) -> EndpointAddress {
    EndpointAddress {
        queue_pair: address.queue_key,
        queue_key: 0,
        ..*address
    }
}

/// Applies `change` to the underlying address.
pub(crate) fn with_inner(
    address: EndpointAddress,
    change: impl FnOnce(EndpointAddress) -> EndpointAddress,
) -> EndpointAddress {
    outer(address.queue_pair, change(inner(&address)))
}

impl<D: Device> Drop for FlorQueuePair<D> {
    fn drop(&mut self) {
        if !self.core().made_in.is_current() {
            return;
        }
        self.core().remove(self.shared.number);
        self.reset();
    }
}

impl<D: Device> QueuePair for FlorQueuePair<D> {
    type Region = FlorRegion<D::Region>;
    type AddressHandle = D::AddressHandle;
    type Mapped = NotMapped;

    fn number(&self) -> u32 {
        self.shared.number
    }

    fn transport(&self) -> Transport {
        RC
    }

    fn state(&self) -> QueuePairState {
        self.shared.state()
    }

    fn address(&self) -> EndpointAddress {
        let address = self.shared.engine().address();
        let none = EndpointAddress::decode(&[0; dunlin_verbs::ENDPOINT_ADDRESS_BYTES]);
        outer(self.shared.number, address.unwrap_or(none))
    }

    fn to_init(&mut self, access: Access) -> Result<(), VerbsError> {
        self.check_move(QueuePairState::Init)?;
        let mut engine = self.shared.engine();
        engine.access = access;
        dunlin_verbs::thread::hold(|| engine.open())?;
        self.shared.set_state(QueuePairState::Init);
        Ok(())
    }

    fn to_ready_to_receive(
        &mut self,
        remote: Option<&EndpointAddress>,
        attributes: ConnectAttributes,
    ) -> Result<(), VerbsError> {
        self.check_move(QueuePairState::ReadyToReceive)?;
        let Some(remote) = remote else {
            return Err(VerbsError::Address(
                "a connected queue pair needs its peer's address".to_owned(),
            ));
        };
        let mut engine = self.shared.engine();
        dunlin_verbs::thread::hold(|| engine.connect(&inner(remote), attributes))?;
        self.shared.set_state(QueuePairState::ReadyToReceive);
        drop(engine);
        // There is one more connection to be driven.
        self.device.drive()?;
        self.core().attend();
        Ok(())
    }

    fn to_ready_to_send(&mut self) -> Result<(), VerbsError> {
        self.check_move(QueuePairState::ReadyToSend)?;
        let mut engine = self.shared.engine();
        self.shared.set_state(QueuePairState::ReadyToSend);
        let now_ns = self.core().now_ns();
        dunlin_verbs::thread::hold(|| engine.work(&self.shared, now_ns));
        Ok(())
    }

    fn to_send_queue_drained(&mut self) -> Result<(), VerbsError> {
        self.check_move(QueuePairState::SendQueueDrained)?;
        let _engine = self.shared.engine();
        self.shared.set_state(QueuePairState::SendQueueDrained);
        Ok(())
    }

    fn failure(&self) -> Option<String> {
        match self.shared.state() {
            QueuePairState::Error => self.shared.cause(),
            _ => None,
        }
    }

    fn to_error(&mut self) {
        if !self.core().made_in.is_current() {
            return;
        }
        let mut engine = self.shared.engine();
        engine.fail(&self.shared, None, Cause::Ended);
        let now_ns = self.core().now_ns();
        dunlin_verbs::thread::hold(|| engine.say_closed(now_ns));
    }

    fn aborter(&self) -> Option<Aborter> {
        let (shared, core) = (
            Arc::downgrade(&self.shared),
            Arc::downgrade(self.device.core()),
        );
        Some(Box::new(move || {
            if let (Some(shared), Some(core)) = (shared.upgrade(), core.upgrade()) {
                let mut engine = shared.engine();
                engine.fail(&shared, None, Cause::Ended);
                let now_ns = core.now_ns();
                dunlin_verbs::thread::hold(|| engine.say_closed(now_ns));
            }
        }))
    }

    fn to_reset(&mut self) {
        self.reset();
    }

    fn post_send(&mut self, requests: &[SendOf<'_, D>]) -> Result<(), PostError> {
        self.core().made_in.check().map_err(PostError::forked)?;
        let shared = Arc::clone(&self.shared);
        let mut engine = shared.engine();
        let mut result = Ok(());
        for (index, request) in requests.iter().enumerate() {
            match self.prepare(request) {
                Ok(posted) => engine.post(&shared, posted),
                Err(kind) => {
                    result = Err(PostError { index, kind });
                    break;
                }
            }
        }
        let now_ns = self.core().now_ns();
        dunlin_verbs::thread::hold(|| engine.work(&shared, now_ns));
        result
    }

    fn post_receive(
        &mut self,
        requests: &[ReceiveRequest<'_, Self::Region>],
    ) -> Result<(), PostError> {
        self.core().made_in.check().map_err(PostError::forked)?;
        let refused = |kind| PostError { index: 0, kind };
        let shared = &self.shared;
        if shared.shares_receives {
            return Err(refused(PostErrorKind::Verb(RC)));
        }
        let state = shared.state();
        if !state.takes_receives() {
            return Err(refused(PostErrorKind::State(state)));
        }
        let mut engine = shared.engine();
        let now_ns = self.core().now_ns();
        let blocked = engine.is_blocked();
        if blocked {
            // A peer that has given up a waiting request must not consume the RECEIVE for it.
            dunlin_verbs::thread::hold(|| engine.step(shared, now_ns));
        }
        let result = shared.receives.post(requests);
        if shared.state() == QueuePairState::Error {
            shared.flush_receives();
        } else if blocked {
            dunlin_verbs::thread::hold(|| engine.work(shared, now_ns));
        }
        result
    }
}
