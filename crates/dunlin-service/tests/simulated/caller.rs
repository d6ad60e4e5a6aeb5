//! A thread of a client: what it calls, and what it expects of that.

use std::collections::BTreeSet;
use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use dunlin::{thread, CallError, Client, Execution, LocalAcceptor, Preset};
use dunlin_service::private::{block_on, Threads};
use dunlin_service::{Channel, Code, Request, Status, Streaming, TRACEPARENT};
use dunlin_sim::SimDevice;
use futures_util::stream::{self, FuturesUnordered, StreamExt};

use crate::dice::Dice;
use crate::service::front_client::FrontClient;
use crate::service::Note;

/// Of each call of a client that has not set another: short, since virtual time in which threads poll is not cheap.
pub const DEADLINE: Duration = Duration::from_secs(1);
/// How often a thread makes a new connection before it gives up.
const LIVES: usize = 3;
/// The codes that `fail` ends with.
const CODES: [Code; 4] = [
    Code::NotFound,
    Code::Aborted,
    Code::Unauthenticated,
    Code::DataLoss,
];

/// What a thread saw.
#[derive(Default)]
pub struct Log {
    pub made: usize,
    pub ended_well: usize,
    /// Unary calls that were answered, and those that were said not to be executed.
    pub answered: BTreeSet<u64>,
    pub not_executed: BTreeSet<u64>,
    pub messages: usize,
    pub given_up: usize,
    /// Calls of which the second server saw the deadline.
    pub hops: usize,
    pub failed: Vec<Failure>,
    pub wrong: Vec<String>,
    /// It has ended by itself.
    pub ended: bool,
}

/// A call that did not end as was asked.
pub struct Failure {
    pub what: String,
    pub status: Status,
    /// It had little time.
    pub hurried: bool,
    /// It asked the second server, too.
    pub relayed: bool,
}

/// A client process: its threads share a channel, which is made anew when it is lost.
pub struct Party {
    pub device: SimDevice,
    pub acceptor: Arc<Mutex<LocalAcceptor>>,
    pub builder: Box<dyn Fn() -> dunlin::ClientBuilder + Send + Sync>,
    pub threads: Threads,
    pub window: usize,
    pub preset: Preset,
    /// The channel, and its number.
    pub channel: Mutex<(Option<Channel>, usize)>,
}

impl Party {
    fn place(&self) -> MutexGuard<'_, (Option<Channel>, usize)> {
        self.channel.lock().expect("nobody panicked")
    }

    /// A channel that is not the one of this number.
    async fn connect(&self, lost: Option<usize>) -> Result<(Channel, usize), Status> {
        if let (Some(channel), number) = &*self.place() {
            if lost != Some(*number) {
                return Ok((channel.clone(), *number));
            }
        }
        let acceptor = self.acceptor.lock().expect("nobody panicked").clone();
        let client: Client = (self.builder)().connect_on(self.device.clone(), &acceptor)?;
        let channel = Channel::from_client(client)
            .await?
            .threads(self.threads.clone())
            .stream_window(self.window);
        let mut place = self.place();
        let number = place.1 + 1;
        let before = std::mem::replace(&mut *place, (Some(channel.clone()), number));
        drop(place);
        // Which takes its time.
        drop(before);
        Ok((channel, number))
    }
}

/// A thread.
pub struct Caller {
    pub number: u64,
    pub party: Arc<Party>,
    pub groups: u64,
    /// Calls at once.
    pub together: u64,
    pub dice: Dice,
    pub log: Arc<Mutex<Log>>,
}

#[derive(Clone, Copy, Debug)]
enum Drawn {
    Echo,
    Fail(Code),
    /// Never answered: it ends by its time.
    Stay(Duration),
    Relay(Option<Duration>),
    Count,
    Sum,
    Chat,
}

/// A call that is to be given up.
type Left = Pin<Box<dyn Future<Output = Result<(), Status>>>>;

/// One call.
#[derive(Clone, Debug)]
struct Call {
    thread: u64,
    number: u64,
    drawn: Drawn,
    /// Of each message.
    length: usize,
    /// Messages of a stream.
    of: u64,
    /// The stream is given up after so many.
    stop_after: Option<u64>,
    /// Sleeps between messages.
    dawdles: Option<Duration>,
}

impl Caller {
    pub fn run(self) {
        let log = Arc::clone(&self.log);
        block_on(self.call_all());
        log.lock().expect("nobody panicked").ended = true;
    }

    async fn call_all(mut self) {
        let mut lives = LIVES;
        let (mut made, mut lost) = (0, None);
        let mut groups = self.groups;
        while groups > 0 && lives > 0 {
            let (channel, number) = match self.party.connect(lost).await {
                Ok(connected) => connected,
                Err(status) => {
                    lives -= 1;
                    self.fails("connect", status);
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            lost = None;
            let front = FrontClient::new(channel);
            while groups > 0 && lost.is_none() {
                groups -= 1;
                let failed = self.call_group(&front, &mut made).await;
                if failed {
                    lives -= 1;
                    lost = Some(number);
                }
                if self.dice.chance(1, 4) {
                    thread::sleep(Duration::from_micros(self.dice.between(0, 500)));
                }
            }
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("nobody panicked")
    }

    fn fails(&self, what: &str, status: Status) {
        self.log().failed.push(Failure {
            what: what.to_owned(),
            status,
            hurried: false,
            relayed: false,
        });
    }

    fn draw(&mut self, made: &mut u64) -> Call {
        let dice = &mut self.dice;
        let hurry = Duration::from_micros(dice.between(5, 5_000));
        let ample = Duration::from_millis(dice.between(1_000, 4_000));
        let drawn = match dice.between(0, 9) {
            0 | 1 => Drawn::Echo,
            2 => Drawn::Fail(dice.one_of(&CODES)),
            3 => Drawn::Stay(hurry),
            4 => Drawn::Relay(dice.one_of(&[None, Some(ample), Some(ample), Some(hurry)])),
            5 => Drawn::Sum,
            6 | 7 => Drawn::Count,
            _ => Drawn::Chat,
        };
        let of = dice.between(0, 60);
        *made += 1;
        Call {
            thread: self.number,
            number: *made,
            drawn,
            length: dice.one_of(&[0, 40, 700, 5_000]),
            of,
            stop_after: dice.chance(1, 6).then(|| dice.between(0, of)),
            dawdles: dice
                .chance(1, 8)
                .then(|| Duration::from_micros(dice.between(1, 100))),
        }
    }

    /// Some calls at once; says whether the connection is to be made anew.
    async fn call_group(&mut self, front: &FrontClient, made: &mut u64) -> bool {
        let calls = FuturesUnordered::new();
        for _ in 0..self.dice.between(1, self.together) {
            let call = self.draw(made);
            self.log().made += 1;
            let log = Arc::clone(&self.log);
            let front = front.clone();
            calls.push(async move {
                let ended = call.make(&front, &log).await;
                call.judge(ended, &log)
            });
        }
        // Given up when all the others have ended.
        let mut left: Vec<Left> = Vec::new();
        for _ in 0..self.dice.one_of(&[0, 0, 1, 3]) {
            *made += 1;
            let (front, note) = (front.clone(), Note::new(self.number, *made, 0, 9));
            left.push(Box::pin(async move { front.stay(note).await.map(drop) }));
        }
        let mut ended = Vec::new();
        let mut all = std::pin::pin!(calls.collect::<Vec<bool>>());
        let lost = poll_fn(|context| {
            left.retain_mut(|call| match call.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(early) => {
                    ended.push(early);
                    false
                }
            });
            all.as_mut().poll(context)
        })
        .await;
        let mut is_lost = lost.contains(&true);
        for early in ended {
            match early {
                Ok(()) => self.log().wrong.push("`stay` was answered".to_owned()),
                Err(status) => {
                    is_lost |= status.code() == Code::Unavailable;
                    self.fails("stay", status);
                }
            }
        }
        self.log().given_up += left.len();
        drop(left);
        is_lost
    }
}

impl Call {
    fn is_hurried(&self) -> bool {
        const AMPLE: Duration = Duration::from_millis(900);
        match self.drawn {
            Drawn::Relay(Some(time)) | Drawn::Stay(time) => time < AMPLE,
            _ => false,
        }
    }

    /// Whether the connection is to be made anew.
    fn judge(&self, ended: Result<(), Status>, log: &Mutex<Log>) -> bool {
        let mut log = log.lock().expect("nobody panicked");
        let is_unary = !matches!(self.drawn, Drawn::Count | Drawn::Sum | Drawn::Chat);
        let Err(status) = ended else {
            log.ended_well += 1;
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
            relayed: matches!(self.drawn, Drawn::Relay(_)),
        });
        again
    }

    async fn make(&self, front: &FrontClient, log: &Mutex<Log>) -> Result<(), Status> {
        let note = Note::new(self.thread, self.number, self.of, self.length);
        match self.drawn {
            Drawn::Echo => {
                let came = front.echo(note.clone()).await?.into_inner();
                if came != note {
                    self.wrong(log, "another's answer");
                }
                Ok(())
            }
            Drawn::Fail(code) => {
                let asked = Note {
                    of: code as u64,
                    ..note
                };
                let payload = asked.payload.clone();
                match front.fail(asked).await {
                    Err(status) if status.code() == code && status.details() == payload => Ok(()),
                    Err(status) => Err(status),
                    Ok(_) => {
                        self.wrong(log, "an answer where it was to fail");
                        Ok(())
                    }
                }
            }
            Drawn::Stay(time) => {
                let mut request = Request::new(note);
                request.set_timeout(time);
                let began = thread::now();
                match front.stay(request).await {
                    Err(status) if status.code() == Code::DeadlineExceeded => {
                        if thread::now() - began < time {
                            self.wrong(log, "it ended before its time was over");
                        }
                        Ok(())
                    }
                    Err(status) => Err(status),
                    Ok(_) => {
                        self.wrong(log, "an answer of one that never answers");
                        Ok(())
                    }
                }
            }
            Drawn::Relay(time) => self.relay(front, note, time, log).await,
            Drawn::Count => {
                let streaming = front.count(note).await?.into_inner();
                self.read(streaming, self.thread, log).await
            }
            Drawn::Sum => {
                let said = stream::iter(self.notes());
                let sum = front.sum(said).await?.into_inner();
                if sum.number != self.of {
                    self.wrong(log, &format!("{} messages came", sum.number));
                }
                Ok(())
            }
            Drawn::Chat => {
                let said = stream::iter(self.notes());
                let streaming = front.chat(said).await?.into_inner();
                self.read(streaming, self.source(), log).await
            }
        }
    }

    /// A number that no other stream has.
    fn source(&self) -> u64 {
        self.thread << 20 | self.number
    }

    fn notes(&self) -> impl Iterator<Item = Note> + Send + 'static {
        let (source, of, length) = (self.source(), self.of, self.length);
        (0..of).map(move |number| Note::new(source, number, of, length))
    }

    /// Each message once and in order, and all of them where the stream ends well.
    async fn read(
        &self,
        mut streaming: Streaming<Note>,
        source: u64,
        log: &Mutex<Log>,
    ) -> Result<(), Status> {
        let mut count = 0;
        while self.stop_after != Some(count) {
            let Some(note) = streaming.message().await? else {
                if count != self.of {
                    self.wrong(log, &format!("it ended well after {count} of {}", self.of));
                }
                return Ok(());
            };
            if !note.is(source, count) {
                let words = format!(
                    "{} of {} where {count} was to come",
                    note.number, note.source
                );
                self.wrong(log, &words);
            }
            count += 1;
            log.lock().expect("nobody panicked").messages += 1;
            if let Some(time) = self.dawdles {
                thread::sleep(time);
            }
        }
        log.lock().expect("nobody panicked").given_up += 1;
        Ok(())
    }

    /// The second server's handler sees the deadline that was set here, and the trace.
    async fn relay(
        &self,
        front: &FrontClient,
        note: Note,
        time: Option<Duration>,
        log: &Mutex<Log>,
    ) -> Result<(), Status> {
        let trace = format!("00-{:032x}-{:016x}-01", self.source() + 1, self.number + 1);
        let mut request = Request::new(note);
        let insert = request.metadata_mut().insert(TRACEPARENT, trace.clone());
        insert.expect("a value");
        if let Some(time) = time {
            request.set_timeout(time);
        }
        let clock = || thread::simulated_now().unwrap_or_default();
        let began = clock();
        let seen = front.relay(request).await?.into_inner();
        let now = clock();
        if seen.payload != trace.as_bytes() {
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
        Ok(())
    }

    fn wrong(&self, log: &Mutex<Log>, words: &str) {
        let what = format!("{:?} {}: {words}", self.drawn, self.number);
        log.lock().expect("nobody panicked").wrong.push(what);
    }
}
