//! Completion queues.

use std::sync::Arc;

use dunlin_verbs::{Completion, CompletionQueue, CompletionQueueError, Notify, VerbsError};

use crate::completion::Cq;
use crate::context;
use crate::inner::Inner;
use crate::stack;
use crate::world::World;

use super::SimCompletionChannel;

/// A completion queue.
#[derive(Debug)]
pub struct SimCompletionQueue {
    inner: Arc<Inner>,
    number: u32,
    host: u16,
    channel: Option<SimCompletionChannel>,
}

impl SimCompletionQueue {
    pub(super) fn new(
        inner: &Arc<Inner>,
        host: u16,
        limit: usize,
        channel: Option<&SimCompletionChannel>,
    ) -> Self {
        let mut world = inner.world(host);
        let next = &mut world.hosts[usize::from(host)].next_completions;
        let of_host = *next;
        *next = next.wrapping_add(1);
        let number = world.cqs.take();
        world.cqs[number] = Cq {
            alive: true,
            users: 1,
            host,
            number: of_host,
            limit,
            channel: channel.map(SimCompletionChannel::number),
            ..Cq::default()
        };
        drop(world);
        Self {
            inner: Arc::clone(inner),
            number,
            host,
            channel: channel.cloned(),
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Moves entries to `out`; those of queue pairs that were reset or dropped are discarded.
    fn take(&self, world: &mut World, out: &mut [Completion]) -> usize {
        let mut made = 0;
        while made < out.len() {
            let Some(entry) = world.cqs[self.number].entries.pop_front() else {
                break;
            };
            let pair = &mut world.pairs[entry.qp as usize];
            if pair.stamp != entry.stamp {
                continue;
            }
            if let Some(retires) = entry.retires {
                pair.retired = pair.retired.max(retires);
            }
            out[made] = entry.completion;
            made += 1;
        }
        made
    }
}

impl Drop for SimCompletionQueue {
    fn drop(&mut self) {
        // Queue pairs may still name it: completions that arrive later are discarded.
        let mut world = self.inner.world(self.host);
        let queue = &mut world.cqs[self.number];
        queue.alive = false;
        queue.entries = Default::default();
        queue.channel = None;
        world.release_completions(self.number);
    }
}

impl CompletionQueue for SimCompletionQueue {
    fn poll(&mut self, completions: &mut [Completion]) -> Result<usize, CompletionQueueError> {
        let mut world = self.inner.world(self.host);
        let caller = self.inner.caller_on(self.host);
        if caller.is_none() && world.cqs[self.number].entries.is_empty() && !context::inside() {
            drop(world);
            self.inner.pump(self.host, |world| {
                let queue = &world.cqs[self.number];
                !queue.entries.is_empty() || queue.overrun
            });
            world = self.inner.world(self.host);
        }
        let queue = &mut world.cqs[self.number];
        if queue.overrun {
            return Err(CompletionQueueError::Overrun { limit: queue.limit });
        }
        if caller.is_some() {
            queue.poller = caller;
        }
        let made = self.take(&mut world, completions);
        if caller.is_some() {
            let prices = &world.hosts[usize::from(self.host)].parameters;
            context::charge(if made == 0 {
                prices.poll_empty
            } else {
                prices.poll_hit * made as u64
            });
        }
        drop(world);
        stack::settle();
        Ok(made)
    }

    fn request_notify(&mut self, notify: Notify) -> Result<(), VerbsError> {
        if self.channel.is_none() {
            return Err(VerbsError::Invalid {
                argument: "notify",
                why: "the completion queue has no channel".to_owned(),
            });
        }
        self.inner.world(self.host).cqs[self.number].armed = Some(notify);
        Ok(())
    }
}
