//! A client thread in a hunt: it calls, and checks that each call ends once, with its own answer or an error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::{CallError, Client, Pipeline};
use dunlin_verbs::thread;

use super::fronts;
use super::planted::{is_planted, Planted};
use crate::dice::{bytes_of, Dice};

/// Answers with [`response`].
pub(super) const ECHO: u16 = 1;
/// Refuses, with [`refusal`].
pub(super) const FAIL: u16 = 2;
/// Answers with [`response`], later and from another thread of the server.
pub(super) const LATER: u16 = 3;
/// A handler that does not exist.
const ABSENT: u16 = 99;

/// Answers with [`response`], after calling another server.
pub(super) const NESTED: u16 = 4;
/// The refusal when the other server does not answer.
pub(super) const NOT_NESTED: u32 = 0x4e45_5354;
/// Bytes that identify a request.
pub(super) const KEY_BYTES: usize = 16;

/// No call takes longer unless its connection is lost: packets are lost for at most two milliseconds, and sent again
/// after half a second.
pub(super) const DEADLINE: Duration = Duration::from_secs(5);

/// Maximum number of new connections of a thread.
pub(super) const LIVES: usize = 3;

/// The load of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) calls: u64,
    pub(super) outstanding: usize,
    pub(super) longest: usize,
    /// One call in this many is followed by a rest.
    pub(super) rests: u64,
}

impl Load {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        Self {
            calls: dice.between(1, 80),
            outstanding: dice.between(1, 8) as usize,
            longest: [16, 100, 900, 9000][dice.next() as usize % 4],
            rests: dice.between(2, 40),
        }
    }
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} calls of {} B at most, {} out",
            self.calls, self.longest, self.outstanding
        )
    }
}

/// An operation of a thread that ended with an error.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// A call of this number, to this handler.
    Call(u64, u16),
    /// An operation on a region.
    Region,
    /// A pipeline, with this many calls outstanding.
    Pipeline(usize),
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call(call, handler) => write!(f, "call {call} of handler {handler}"),
            Self::Region => f.write_str("a region"),
            Self::Pipeline(out) => write!(f, "a pipeline with {out} out"),
        }
    }
}

/// Record of a thread.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) made: u64,
    /// Calls that ended with the handler's answer, and with anything else.
    pub(super) answered: BTreeSet<u64>,
    pub(super) errors: Vec<(Part, CallError)>,
    /// Calls whose handler calls another server, and their errors.
    pub(super) asked: BTreeSet<u64>,
    pub(super) nested: Vec<CallError>,
    /// Calls reported as lost, and whether they were reported as executed.
    pub(super) lost: BTreeMap<u64, bool>,
    pub(super) wrong: Vec<String>,
    pub(super) ended: bool,
}

impl Log {
    /// Number of calls that called another server and have not returned its answer: until they end at the server each
    /// keeps one of its lane's places, even when its caller has given it up.
    pub(super) fn kept_places(&self) -> usize {
        self.asked.difference(&self.answered).count()
    }
}

/// State of a thread.
pub(super) struct Caller {
    pub(super) number: u64,
    pub(super) pipeline: Pipeline,
    pub(super) client: Client,
    pub(super) load: Load,
    pub(super) dice: Dice,
    pub(super) log: Arc<Mutex<Log>>,
}

/// Key of a request: thread and call.
pub(super) fn read_key(payload: &[u8]) -> Option<(u64, u64)> {
    let (thread, rest) = payload.split_first_chunk()?;
    let (call, _) = rest.split_first_chunk()?;
    Some((u64::from_le_bytes(*thread), u64::from_le_bytes(*call)))
}

/// The unique answer of a call: its key, and bytes behind it. A few answers are empty, and so not unique, because an
/// answer without bytes is a case of its own.
pub(super) fn response(thread: u64, call: u64) -> Vec<u8> {
    let drawn = (thread * 31 + call * 7) as usize;
    if drawn % 41 == 0 {
        return Vec::new();
    }
    let length = [8, 24, 40, 64, 500, 5000][drawn % 6];
    let mut bytes = bytes_of(!thread, call, length);
    bytes[..8].copy_from_slice(&(!(thread << 32 | call)).to_le_bytes());
    bytes
}

/// Message of a refusal.
pub(super) const AS_ASKED: &str = "as asked";

/// The unique refusal code of a call.
pub(super) fn refusal(thread: u64, call: u64) -> u32 {
    (thread << 16 | call) as u32
}

/// A random request.
pub(super) struct Drawn {
    pub(super) call: u64,
    pub(super) handler: u16,
    pub(super) payload: Vec<u8>,
}

/// Draws the next request of a thread, with at most `longest` bytes in addition to its key.
pub(super) fn draw_request(thread: u64, call: u64, longest: usize, dice: &mut Dice) -> Drawn {
    let handler = match dice.between(0, 19) {
        0 => FAIL,
        1 => ABSENT,
        2..=5 => LATER,
        6 => NESTED,
        _ => ECHO,
    };
    let length = dice.between(0, longest as u64) as usize;
    let mut payload = thread.to_le_bytes().to_vec();
    payload.extend_from_slice(&call.to_le_bytes());
    payload.extend_from_slice(&bytes_of(thread, call, length));
    Drawn {
        call,
        handler,
        payload,
    }
}

/// Records how a call has ended.
pub(super) fn judge(
    log: &mut Log,
    thread: u64,
    (call, handler): (u64, u16),
    ended: Result<&[u8], CallError>,
) {
    match (handler, ended) {
        (ECHO | LATER | NESTED, Ok(bytes)) if bytes == response(thread, call) => {
            log.answered.insert(call);
        }
        (FAIL, Err(CallError::Handler { code, message }))
            if code == refusal(thread, call) && message == AS_ASKED =>
        {
            log.answered.insert(call);
        }
        (ABSENT, Err(CallError::UnknownHandler(ABSENT))) => {}
        (
            NESTED,
            Err(
                error @ (CallError::DeadlineExceeded { .. }
                | CallError::Handler {
                    code: NOT_NESTED, ..
                }),
            ),
        ) => {
            log.nested.push(error);
        }
        (handler, Ok(_)) => {
            let what = format!("the answer of handler {handler} to {call} is another's");
            log.wrong.push(what);
        }
        // Reported by a server, to some caller: a lost connection does not explain it.
        (handler, Err(error @ (CallError::Handler { .. } | CallError::UnknownHandler(_)))) => {
            let what = format!("the refusal of handler {handler} to {call} is another's: {error}");
            log.wrong.push(what);
        }
        (_, Err(error)) => {
            if let CallError::PacketLost { executed } = error {
                log.lost.insert(call, executed);
            }
            log.errors.push((Part::Call(call, handler), error));
        }
    }
}

impl Caller {
    pub(super) fn run(self) {
        assert!(!is_planted(Planted::Panic), "planted");
        let log = Arc::clone(&self.log);
        self.call_all();
        log.lock().expect("nobody panicked").ended = true;
    }

    fn call_all(self) {
        let Self {
            number,
            mut pipeline,
            client,
            load,
            mut dice,
            log,
        } = self;
        // A task or a thread waits.
        let is_awaited = number % 3 == 2;
        let mut out: BTreeMap<u64, u16> = BTreeMap::new();
        let (mut made, mut lives) = (0, LIVES);
        loop {
            let mut refused = false;
            while out.len() < load.outstanding && made < load.calls {
                let drawn = draw_request(number, made, load.longest, &mut dice);
                match pipeline.submit(drawn.handler, &drawn.payload, made) {
                    Ok(true) => {
                        out.insert(made, drawn.handler);
                        if drawn.handler == NESTED {
                            log.lock().expect("nobody panicked").asked.insert(made);
                        }
                        made += 1;
                    }
                    Ok(false) => break,
                    // Outstanding calls, if any, end by the wait below.
                    Err(error) => {
                        Self::fails(&log, (Part::Call(made, drawn.handler), error));
                        refused = true;
                        break;
                    }
                }
            }
            let take = |call, answer: Result<&[u8], CallError>| {
                let mut log = log.lock().expect("nobody panicked");
                log.made = made;
                match out.remove(&call) {
                    None => log.wrong.push(format!("call {call} ends once more")),
                    Some(handler) => judge(&mut log, number, (call, handler), answer),
                }
            };
            let waited = match is_awaited {
                true => fronts::block_on(pipeline.wait_async(take)),
                false => pipeline.wait(take),
            };
            if refused && waited.is_ok() {
                lives -= 1;
                if lives == 0 {
                    break;
                }
            }
            if let Err(error) = waited {
                let late = matches!(error, CallError::DeadlineExceeded { .. });
                if !late && !out.is_empty() {
                    let what = format!("{error}: {} calls did not end", out.len());
                    log.lock().expect("nobody panicked").wrong.push(what);
                }
                // Calls that wait for another server may be late without a fault.
                if late && out.values().all(|&handler| handler == NESTED) {
                    log.lock().expect("nobody panicked").nested.push(error);
                } else {
                    Self::fails(&log, (Part::Pipeline(out.len()), error));
                }
                out.clear();
                lives -= 1;
                // A peer that does not answer at all will not answer the next time either.
                let next = if late || lives == 0 {
                    None
                } else {
                    client.pipeline().ok()
                };
                match next {
                    Some(next) => pipeline = next,
                    None => break,
                }
            }
            log.lock().expect("nobody panicked").made = made;
            if made == load.calls && out.is_empty() {
                break;
            }
            if dice.chance(1, load.rests) {
                thread::sleep(Duration::from_micros(dice.between(0, 400)));
            }
        }
        drop(pipeline);
    }

    fn fails(log: &Mutex<Log>, what: (Part, CallError)) {
        log.lock().expect("nobody panicked").errors.push(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(handler: u16, ended: Result<&[u8], CallError>) -> Log {
        let mut log = Log::default();
        judge(&mut log, 1, (2, handler), ended);
        log
    }

    fn refused(code: u32) -> Result<&'static [u8], CallError> {
        let message = AS_ASKED.to_owned();
        Err(CallError::Handler { code, message })
    }

    #[test]
    fn what_is_said_to_another_call_is_wrong_and_no_error_that_may_have_a_cause() {
        let is_wrong = |handler, ended| {
            let log = judged(handler, ended);
            assert!(log.errors.is_empty() && log.nested.is_empty(), "{log:?}");
            assert!(log.answered.is_empty() != log.wrong.is_empty(), "{log:?}");
            !log.wrong.is_empty()
        };
        assert!(!is_wrong(FAIL, refused(refusal(1, 2))));
        for other in [refusal(1, 3), refusal(3, 2), NOT_NESTED] {
            assert!(is_wrong(FAIL, refused(other)));
        }
        for handler in [ECHO, LATER, NESTED, ABSENT] {
            assert!(is_wrong(handler, refused(refusal(1, 2))));
        }
        for handler in [ECHO, FAIL, LATER, NESTED] {
            assert!(is_wrong(handler, Err(CallError::UnknownHandler(ABSENT))));
        }
        assert!(is_wrong(ABSENT, Err(CallError::UnknownHandler(ECHO))));
        let (own, other) = (response(1, 2), response(1, 3));
        assert!(is_wrong(ECHO, Ok(&other)));
        assert!(!is_wrong(ECHO, Ok(&own)));
        assert_eq!(judged(NESTED, refused(NOT_NESTED)).nested.len(), 1);
    }

    #[test]
    fn no_two_calls_have_the_same_answer_beside_the_few_empty_ones() {
        let calls = (0..16).flat_map(|thread| (0..100).map(move |call| (thread, call)));
        let all: Vec<Vec<u8>> = calls.map(|(thread, call)| response(thread, call)).collect();
        let some: Vec<&Vec<u8>> = all.iter().filter(|one| !one.is_empty()).collect();
        assert!(some.len() > 15 * 100 && some.len() < 16 * 100);
        let keys: BTreeSet<&[u8]> = some.iter().map(|one| &one[..8]).collect();
        assert_eq!(keys.len(), some.len());
    }
}
