//! Sends the messages of a user's stream, as far as there is credit.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::Poll;

use futures_core::Stream;

use super::frame::MAX_MESSAGE_BYTES;
use super::session::Session;
use crate::codec::Encode;
use crate::Status;

thread_local! {
    /// The buffer in which messages are encoded, outside of the session's lock.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
/// A buffer larger than this is freed after use.
const KEPT_BYTES: usize = 64 << 10;

/// Sends one message.
///
/// # Errors
/// If it is too long.
pub(crate) fn send<T, C: Encode<T>>(session: &Session, id: u64, message: &T) -> Result<(), Status> {
    let length = C::encoded_len(message);
    if length > MAX_MESSAGE_BYTES {
        return Err(Status::resource_exhausted(format!(
            "message too long: {length} bytes, the limit for streams is {MAX_MESSAGE_BYTES}"
        )));
    }
    BUFFER.with(|place| {
        let mut buffer = place.take();
        buffer.clear();
        C::append(message, &mut buffer);
        session.with(|mux| mux.send(id, &buffer));
        if buffer.capacity() <= KEPT_BYTES {
            place.replace(buffer);
        }
    });
    Ok(())
}

/// Waits until not too much is waiting to be sent, or the stream has ended.
pub(crate) async fn room(session: &Session, id: u64) {
    poll_fn(
        |context| match session.with(|mux| mux.has_room(id, context.waker())) {
            Some(false) => Poll::Pending,
            None | Some(true) => Poll::Ready(()),
        },
    )
    .await;
}

/// Sends all messages of `source`; ends after the last, with the first error, or when the peer no longer wants them
/// (`Ok(false)`).
pub(crate) async fn pump<T, C: Encode<T>>(
    session: &Session,
    id: u64,
    source: impl Stream<Item = Result<T, Status>>,
) -> Result<bool, Status> {
    let mut source = std::pin::pin!(source);
    poll_fn(|context| loop {
        match session.with(|mux| mux.may_send(id, context.waker())) {
            None => return Poll::Ready(Ok(false)),
            Some(false) => return Poll::Pending,
            Some(true) => {}
        }
        match source.as_mut().poll_next(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => return Poll::Ready(Ok(true)),
            Poll::Ready(Some(message)) => {
                let sent = message.and_then(|message| send::<T, C>(session, id, &message));
                if let Err(status) = sent {
                    return Poll::Ready(Err(status));
                }
            }
        }
    })
    .await
}
