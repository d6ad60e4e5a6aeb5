//! How a pipeline has its next lane made: by its own thread, or by another if it is polled as a task, whose executor
//! must not wait for a handshake.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dunlin_verbs::process::Owned;
use dunlin_verbs::thread;

use super::Pipeline;
use crate::call::lane::Lane;
use crate::client::recipe::{Opened, Recipe};
use crate::client::spares::usable;
use crate::client::thread_future::ThreadFuture;
use crate::client::wait::end_of;

/// A lane that another thread makes.
pub(super) struct Making {
    by: Arc<Recipe>,
    began: Instant,
    allowed: Duration,
    lane: Owned<ThreadFuture<Opened>>,
}

impl Making {
    /// Whether there is nothing to do until it has ended.
    pub(super) fn is_awaited(&self) -> bool {
        !self.lane.is_ready() && !self.by.is_replaced()
    }
}

impl Pipeline {
    /// A lane made by this recipe. `None`: not now, and the pipeline keeps its current lane.
    pub(super) fn next_lane(&mut self, recipe: &Arc<Recipe>) -> Option<Box<dyn Lane>> {
        let making = self.making.take();
        let (began, allowed, opened) = match making.filter(|it| Arc::ptr_eq(&it.by, recipe)) {
            Some(mut making) => {
                let mut context = Context::from_waker(Waker::noop());
                let Poll::Ready(opened) = Pin::new(&mut *making.lane).poll(&mut context) else {
                    self.making = Some(making);
                    return None;
                };
                (making.began, making.allowed, opened)
            }
            None => {
                let (began, allowed) = (thread::now(), self.attempts.allowed(self.deadline));
                let until = end_of(began, allowed);
                let opened = match recipe.refuse_own_server() {
                    // Its connections take no time that a thread waits for.
                    Ok(()) if self.kind.is_task && !recipe.is_local() => {
                        self.making = Some(Making {
                            by: Arc::clone(recipe),
                            began,
                            allowed,
                            lane: Owned::new(recipe.open_apart(self.window, until)),
                        });
                        return None;
                    }
                    refused => refused.and_then(|()| recipe.open_for_any(self.window, until)),
                };
                (began, allowed, opened)
            }
        };
        match opened {
            // Its server may have gone since.
            Ok(lane) => usable(Some(lane)),
            Err(error) => {
                tracing::debug!(%error, "cannot open another lane: the pipeline keeps its current lane");
                // The failure of an attempt with too little time does not show that the next one, with more, would
                // fail.
                self.may_share &= thread::now() >= end_of(began, allowed);
                self.attempts.failed(recipe, (began, allowed));
                None
            }
        }
    }
}
