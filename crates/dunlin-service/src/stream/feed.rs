//! Turns an iterator into a stream. A dedicated thread reads it, because an iterator may block for any time, while the
//! task that drives a channel's streams must not.

use std::future::poll_fn;
use std::io;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

use futures_channel::mpsc;
use futures_core::Stream;
use futures_util::stream::StreamExt;

use crate::tasks::{block_on, Threads};

/// Number of messages read ahead: few, because each may be long, but more than one, so that not every message wakes a
/// thread.
const AHEAD: usize = 4;

/// Turns an iterator into a stream. If the iterator panics, so does the stream.
///
/// # Errors
/// If no thread can be started.
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
