//! Answers that came while their thread led its lane, kept until it no longer leads: user code is not run before. It
//! may make calls on the same lane, where it would wait for its own thread, and all threads of the lane would wait for
//! it.

use crate::call::lane::{Answer, Sink};
use crate::call::reply::Reply;
use crate::error::CallError;

/// Size in bytes up to which the buffer is kept for the next answers.
const KEPT_BYTES: usize = 64 << 10;

/// See the module.
#[derive(Default)]
pub(super) struct Answers {
    ended: Vec<(u64, Ended)>,
    /// Short responses, one after the other.
    bytes: Vec<u8>,
}

/// How a call ended.
enum Ended {
    /// With a short response of this many of the bytes.
    Short(usize),
    Otherwise(Result<Reply, CallError>),
}

impl Sink for Answers {
    #[inline]
    fn answer(&mut self, tag: u64, response: &[u8]) {
        self.bytes.extend_from_slice(response);
        self.ended.push((tag, Ended::Short(response.len())));
    }

    fn complete(&mut self, tag: u64, result: Result<Answer<'_>, CallError>) {
        match result {
            Ok(Answer::Short(response)) => self.answer(tag, response),
            other => {
                let ended = Ended::Otherwise(other.map(Reply::new));
                self.ended.push((tag, ended));
            }
        }
    }
}

impl Answers {
    /// The sink that gets answers while the lane is led.
    #[inline]
    pub(super) fn or<'a>(&'a mut self, sink: &'a mut dyn Sink) -> &'a mut dyn Sink {
        match sink.calls_back() {
            true => self,
            false => sink,
        }
    }

    /// Gives the kept answers to the sink that they are for.
    #[inline]
    pub(super) fn give(&mut self, sink: &mut dyn Sink) {
        if !self.ended.is_empty() {
            self.give_all(sink);
        }
    }

    fn give_all(&mut self, sink: &mut dyn Sink) {
        // Taken out first: after a panic the same answer must not be here again.
        let (mut ended, mut bytes) = (
            std::mem::take(&mut self.ended),
            std::mem::take(&mut self.bytes),
        );
        let mut rest = &bytes[..];
        for (tag, how) in ended.drain(..) {
            match how {
                Ended::Short(length) => {
                    let (response, others) = rest.split_at(length);
                    rest = others;
                    sink.answer(tag, response);
                }
                Ended::Otherwise(Ok(reply)) => {
                    reply.into_answer(|answer| sink.complete(tag, Ok(answer)));
                }
                Ended::Otherwise(Err(error)) => sink.complete(tag, Err(error)),
            }
        }
        bytes.clear();
        if bytes.capacity() <= KEPT_BYTES {
            (self.ended, self.bytes) = (ended, bytes);
        }
    }
}
