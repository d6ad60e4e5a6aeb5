//! What an iterator brings, as a stream: from a thread of its own, because an iterator may wait for its next message as
//! long as it likes, and the task that drives a channel's streams may not.

use std::future::poll_fn;
use std::io;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

use futures_channel::mpsc;
use futures_core::Stream;
use futures_util::stream::StreamExt;

use crate::tasks::{block_on, Threads};

/// Messages that wait for the stream to take them: few, because each may be long, and more than one, so that not each
/// wakes a thread.
const AHEAD: usize = 4;

/// See the module. A panic of the iterator is one of the stream.
///
/// # Errors
/// When there is no thread to be had.
pub(crate) fn feed<I>(
    threads: &Threads,
    mut messages: I,
) -> io::Result<impl Stream<Item = I::Item> + Send + 'static>
where
    I: Iterator + Send + 'static,
    I::Item: Send + 'static,
{
    let (mut target, fed) = mpsc::channel(AHEAD);
    let run = move || loop {
        let next = catch_unwind(AssertUnwindSafe(|| messages.next()));
        let Some(message) = next.transpose() else {
            return;
        };
        let is_last = message.is_err();
        let is_wanted = block_on(poll_fn(|context| target.poll_ready(context))).is_ok();
        if !is_wanted || target.start_send(message).is_err() || is_last {
            return;
        }
    };
    threads.start("dunlin-messages", Box::new(run))?;
    Ok(fed.map(|message| message.unwrap_or_else(|panic| resume_unwind(panic))))
}
