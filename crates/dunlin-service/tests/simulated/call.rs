//! A call: what is drawn of it, and what is expected of how it ends, whoever makes it.

use std::sync::Mutex;
use std::time::Duration;

use dunlin::{thread, CallError, Execution};
use dunlin_service::{Channel, Code, Request, Response, Status, TRACEPARENT};

use crate::log::{Failure, Log};
use crate::service::front_client::FrontClient;
use crate::service::Note;
use crate::works::quick_client::QuickClient;
use crate::works::works_client::WorksClient;

/// Clients of all services of the first server.
#[derive(Clone)]
pub struct Clients {
    pub front: FrontClient,
    pub works: WorksClient,
    pub quick: QuickClient,
}

impl Clients {
    pub fn new(channel: &Channel) -> Self {
        Self {
            front: FrontClient::new(channel.clone()),
            works: WorksClient::new(channel.clone()),
            quick: QuickClient::new(channel.clone()),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Drawn {
    Echo,
    /// Answered on the polling thread.
    Quick,
    /// A worker takes so many microseconds for it.
    Work(u64),
    Fail(Code),
    /// Never answered: it ends by its time.
    Stay(Duration),
    Relay(Option<Duration>),
    /// The same, of a worker that waits for the second server.
    Delegate(Option<Duration>),
    Count,
    Sum,
    Chat,
}

impl Drawn {
    fn is_unary(self) -> bool {
        !matches!(self, Self::Count | Self::Sum | Self::Chat)
    }

    fn is_of_workers(self) -> bool {
        matches!(self, Self::Work(_) | Self::Delegate(_))
    }

    /// What it has said of its time.
    fn time(self) -> Option<Duration> {
        match self {
            Self::Stay(time) => Some(time),
            Self::Relay(time) | Self::Delegate(time) => time,
            _ => None,
        }
    }
}

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    pub thread: u64,
    pub number: u64,
    pub drawn: Drawn,
    /// Of each message.
    pub length: usize,
    /// Messages of a stream.
    pub of: u64,
    /// The stream is given up after so many.
    pub stop_after: Option<u64>,
    /// Sleeps between messages.
    pub dawdles: Option<Duration>,
}

impl Call {
    fn is_hurried(&self) -> bool {
        const AMPLE: Duration = Duration::from_millis(900);
        self.drawn.time().is_some_and(|time| time < AMPLE)
    }

    /// Whether the connection is to be made anew.
    pub fn judge(&self, ended: Result<(), Status>, log: &Mutex<Log>) -> bool {
        let mut log = log.lock().expect("nobody panicked");
        let is_unary = self.drawn.is_unary();
        let Err(status) = ended else {
            log.ended_well += 1;
            log.by_workers += usize::from(self.drawn.is_of_workers());
            if is_unary && !matches!(self.drawn, Drawn::Stay(_)) {
                log.answered.insert(self.number);
            }
            return false;
        };
        if is_unary && status.execution() == Execution::NotExecuted {
            log.not_executed.insert(self.number);
        }
        let again = status.code() == Code::Unavailable
            || matches!(status.call_error(), Some(CallError::Closed));
        log.failed.push(Failure {
            what: format!("{:?} {}", self.drawn, self.number),
            status,
            hurried: self.is_hurried(),
            relayed: matches!(self.drawn, Drawn::Relay(_) | Drawn::Delegate(_)),
            queued: self.drawn.is_of_workers(),
        });
        again
    }

    /// The message of its request: `of` is what the method makes of it.
    pub fn note(&self) -> Note {
        let of = match self.drawn {
            Drawn::Work(microseconds) => microseconds,
            Drawn::Fail(code) => code as u64,
            _ => self.of,
        };
        Note::new(self.thread, self.number, of, self.length)
    }

    /// The request, with its time and, where the second server is to see it, a trace.
    pub fn request(&self) -> Request<Note> {
        let mut request = Request::new(self.note());
        if let Some(time) = self.drawn.time() {
            request.set_timeout(time);
        }
        if matches!(self.drawn, Drawn::Relay(_) | Drawn::Delegate(_)) {
            let insert = request.metadata_mut().insert(TRACEPARENT, self.trace());
            insert.expect("a value");
        }
        request
    }

    fn trace(&self) -> String {
        format!("00-{:032x}-{:016x}-01", self.source() + 1, self.number + 1)
    }

    /// How a unary call ended that began at that virtual time. An error is one that was not asked for.
    pub fn ended(
        &self,
        ended: Result<Note, Status>,
        began: Duration,
        log: &Mutex<Log>,
    ) -> Result<(), Status> {
        match (self.drawn, ended) {
            (Drawn::Fail(code), Err(status))
                if status.code() == code && status.details() == self.note().payload => {}
            (Drawn::Fail(_), Ok(_)) => self.wrong(log, "an answer where it was to fail"),
            (Drawn::Stay(time), Err(status)) if status.code() == Code::DeadlineExceeded => {
                if clock() - began < time {
                    self.wrong(log, "it ended before its time was over");
                }
            }
            (Drawn::Stay(_), Ok(_)) => self.wrong(log, "an answer of one that never answers"),
            (_, Err(status)) => return Err(status),
            (Drawn::Relay(time) | Drawn::Delegate(time), Ok(seen)) => {
                self.check_hops(&seen, time, began, log);
            }
            (_, Ok(came)) if came != self.note() => self.wrong(log, "another's answer"),
            (_, Ok(_)) => {}
        }
        Ok(())
    }

    /// The second server's handler sees the deadline that was set here, and the trace.
    fn check_hops(&self, seen: &Note, time: Option<Duration>, began: Duration, log: &Mutex<Log>) {
        let now = clock();
        if seen.payload != self.trace().as_bytes() {
            self.wrong(log, "the second server saw another trace");
        }
        let deadline = seen.of.checked_sub(1).map(Duration::from_nanos);
        // It travels as the time that is left, in microseconds, and the ways take their time.
        let is_it = match (time, deadline) {
            (None, None) => true,
            (Some(time), Some(seen)) => {
                seen + Duration::from_micros(3) >= began + time && seen <= now + time
            }
            _ => false,
        };
        if !is_it {
            let words = format!("{time:?} from {began:?} on: the second server saw {deadline:?}");
            self.wrong(log, &words);
        }
        log.lock().expect("nobody panicked").hops += 1;
    }

    /// A number that no other stream has.
    pub fn source(&self) -> u64 {
        self.thread << 20 | self.number
    }

    /// Whose the messages are that come.
    pub fn source_of_answers(&self) -> u64 {
        match self.drawn {
            Drawn::Count => self.thread,
            _ => self.source(),
        }
    }

    /// What the client says.
    pub fn notes(&self) -> impl Iterator<Item = Note> + Send + 'static {
        let (source, of, length) = (self.source(), self.of, self.length);
        (0..of).map(move |number| Note::new(source, number, of, length))
    }

    /// How many messages the server says that there were.
    pub fn summed(&self, sum: &Response<Note>, log: &Mutex<Log>) {
        let count = sum.get_ref().number;
        if count != self.of {
            self.wrong(log, &format!("{count} messages came"));
        }
    }

    /// Message `count` of a stream has come: each once and in order, and all of them where the stream ends well. Says
    /// whether to read on.
    pub fn took(&self, came: Option<Note>, count: u64, log: &Mutex<Log>) -> bool {
        let Some(note) = came else {
            if count != self.of {
                self.wrong(log, &format!("it ended well after {count} of {}", self.of));
            }
            return false;
        };
        if !note.is(self.source_of_answers(), count) {
            let words = format!(
                "{} of {} where {count} was to come",
                note.number, note.source
            );
            self.wrong(log, &words);
        }
        log.lock().expect("nobody panicked").messages += 1;
        if let Some(time) = self.dawdles {
            thread::sleep(time);
        }
        true
    }

    pub fn wrong(&self, log: &Mutex<Log>, words: &str) {
        let what = format!("{:?} {}: {words}", self.drawn, self.number);
        log.lock().expect("nobody panicked").wrong.push(what);
    }
}

/// Virtual time.
pub fn clock() -> Duration {
    thread::simulated_now().unwrap_or_default()
}
