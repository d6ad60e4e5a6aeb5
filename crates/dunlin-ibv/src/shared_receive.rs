//! Receive queues that are shared by several queue pairs.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::Arc;

use dunlin_verbs::{PostError, ReceiveRequest, SharedReceiveQueue, Transport, VerbsError};

use crate::context::Shared;
use crate::device::Domain;
use crate::error::{invalid, last};
use crate::queue_pair::Receiver;
use crate::region::IbvRegion;
use crate::sys::types;
use crate::work_table::{Kind, WorkTable};

/// The part of a shared receive queue that its queue pairs hold.
#[derive(Debug)]
pub(crate) struct SrqCore {
    pub(crate) raw: Shared<types::Srq>,
    pub(crate) domain: Arc<Domain>,
    pub(crate) table: Arc<WorkTable>,
    /// 0: no queue pair yet; 1: connected ones; 2: datagrams.
    users: AtomicU8,
}

impl SrqCore {
    /// Adds a queue pair. A completion does not tell whose RECEIVE it was, so datagrams and connections must not share
    /// a queue.
    pub(crate) fn join(&self, transport: Transport) -> Result<(), VerbsError> {
        let datagrams = transport == Transport::UnreliableDatagram;
        let kind = if datagrams { 2 } else { 1 };
        let before = self
            .users
            .compare_exchange(0, kind, Ordering::AcqRel, Ordering::Acquire);
        if before.is_err_and(|before| before != kind) {
            return Err(invalid(
                "receive_queue",
                "shared by connected and datagram queue pairs; use one queue for each kind",
            ));
        }
        if datagrams {
            self.table.set_datagrams();
        }
        Ok(())
    }
}

impl Drop for SrqCore {
    fn drop(&mut self) {
        let core = self.domain.device.core();
        if !core.made_in.is_current() {
            return;
        }
        // SAFETY: queue pairs hold this value, so none is left; it is destroyed once.
        let errno = unsafe { (core.api.destroy_srq)(self.raw.0) };
        if errno != 0 {
            tracing::warn!(device = %core.nic, errno, "ibv_destroy_srq failed");
        }
        core.tables.remove(&self.table);
    }
}

/// A receive queue that is shared by several queue pairs.
#[derive(Debug)]
pub struct IbvSharedReceiveQueue {
    core: Arc<SrqCore>,
    receiver: Receiver,
    post: types::PostSharedReceive,
}

impl IbvSharedReceiveQueue {
    pub(crate) fn new(
        domain: &Arc<Domain>,
        requests: usize,
        segments: usize,
    ) -> Result<Self, VerbsError> {
        let core = domain.device.core();
        let Some(post) = core.operations().post_shared_receive else {
            return Err(VerbsError::Unsupported {
                device: core.nic.clone(),
                what: "shared receive queues".to_owned(),
            });
        };
        let requests = requests.max(1);
        let mut init = types::SrqInit {
            user: std::ptr::null_mut(),
            attributes: types::SrqAttributes {
                wr: requests as u32,
                sge: segments.max(1) as u32,
                limit: 0,
            },
        };
        // SAFETY: the domain is alive and `init` valid for the call.
        let raw = unsafe { (core.api.create_srq)(domain.raw.0, &mut init) };
        if raw.is_null() {
            return Err(last(
                "ibv_create_srq",
                format!(
                    "a shared receive queue of {requests} requests on {}",
                    core.nic
                ),
            ));
        }
        let Some(table) = core.tables.insert(Kind::Shared, requests) else {
            // SAFETY: just made and not used.
            unsafe { (core.api.destroy_srq)(raw) };
            return Err(invalid(
                "shared receive queues",
                "too many queues on this device",
            ));
        };
        Ok(Self {
            receiver: Receiver::new(Arc::clone(&table), domain, segments.max(1)),
            core: Arc::new(SrqCore {
                raw: Shared(raw),
                domain: Arc::clone(domain),
                table,
                users: AtomicU8::new(0),
            }),
            post,
        })
    }

    pub(crate) fn core(&self) -> &Arc<SrqCore> {
        &self.core
    }
}

impl SharedReceiveQueue for IbvSharedReceiveQueue {
    type Region = IbvRegion;

    fn post_receive(
        &mut self,
        requests: &[ReceiveRequest<'_, IbvRegion>],
    ) -> Result<(), PostError> {
        let made_in = self.core.domain.device.core().made_in;
        made_in.check().map_err(PostError::forked)?;
        let (post, raw) = (self.post, self.core.raw.0);
        self.receiver.post(requests, |first, bad| {
            // SAFETY: the queue is alive, and `first` is a list that is valid for the call.
            unsafe { post(raw, first, bad) }
        })
    }
}
