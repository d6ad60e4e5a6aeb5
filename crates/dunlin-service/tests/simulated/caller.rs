//! A thread of a client: what it calls, and how.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use dunlin::{thread, Client, LocalAcceptor, Preset};
use dunlin_service::private::{block_on, Threads};
use dunlin_service::{Channel, Code, Status};
use dunlin_sim::SimDevice;

use crate::call::{Call, Clients, Drawn};
use crate::dice::Dice;
use crate::log::{Failure, Log};
use crate::{blocking, futures, pipelined};

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

    /// A channel that is not the one of this number, made as `manner` does.
    fn connect(&self, lost: Option<usize>, manner: Manner) -> Result<(Channel, usize), Status> {
        if let (Some(channel), number) = &*self.place() {
            if lost != Some(*number) {
                return Ok((channel.clone(), *number));
            }
        }
        let acceptor = self.acceptor.lock().expect("nobody panicked").clone();
        let client: Client = (self.builder)().connect_on(self.device.clone(), &acceptor)?;
        let channel = match manner {
            Manner::Tasks => block_on(Channel::from_client(client))?,
            _ => Channel::from_client_blocking(client)?,
        };
        let channel = channel
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

/// How a thread calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// By futures, some at once.
    Tasks,
    /// One call after the other.
    Blocking,
    /// By pipelines.
    Pipelined,
}

/// A thread.
pub struct Caller {
    pub number: u64,
    pub party: Arc<Party>,
    pub manner: Manner,
    pub groups: u64,
    /// Calls at once.
    pub together: u64,
    pub dice: Dice,
    pub log: Arc<Mutex<Log>>,
}

impl Caller {
    pub fn run(self) {
        let log = Arc::clone(&self.log);
        self.call_all();
        log.lock().expect("nobody panicked").ended = true;
    }

    fn call_all(mut self) {
        let mut lives = LIVES;
        let (mut made, mut lost) = (0, None);
        let mut groups = self.groups;
        while groups > 0 && lives > 0 {
            let (channel, number) = match self.party.connect(lost, self.manner) {
                Ok(connected) => connected,
                Err(status) => {
                    lives -= 1;
                    self.log().failed.push(Failure::new("connect", status));
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            lost = None;
            let clients = Clients::new(&channel);
            while groups > 0 && lost.is_none() {
                groups -= 1;
                let failed = match self.manner {
                    Manner::Tasks => block_on(futures::call_group(&mut self, &clients, &mut made)),
                    Manner::Blocking => blocking::call_group(&mut self, &clients, &mut made),
                    Manner::Pipelined => pipelined::call_group(&mut self, &channel, &mut made),
                };
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

    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("nobody panicked")
    }

    /// Any call.
    pub fn draw(&mut self, made: &mut u64) -> Call {
        let dice = &mut self.dice;
        let hurry = Duration::from_micros(dice.between(5, 5_000));
        let ample = Duration::from_millis(dice.between(1_000, 4_000));
        let time = dice.one_of(&[None, Some(ample), Some(ample), Some(hurry)]);
        let drawn = match dice.between(0, 13) {
            0 | 1 => Drawn::Echo,
            2 => Drawn::Quick,
            3 => Drawn::Fail(dice.one_of(&CODES)),
            4 => Drawn::Stay(hurry),
            5 => Drawn::Relay(time),
            6 => Drawn::Delegate(time),
            7 | 8 => Drawn::Work(dice.between(0, 500)),
            9 => Drawn::Sum,
            10 | 11 => Drawn::Count,
            _ => Drawn::Chat,
        };
        self.log().made += 1;
        self.complete(drawn, made)
    }

    /// One that a pipeline can make.
    pub fn draw_short(&mut self, made: &mut u64) -> Call {
        let dice = &mut self.dice;
        let drawn = match dice.between(0, 5) {
            0 | 1 => Drawn::Quick,
            2 => Drawn::Fail(dice.one_of(&CODES)),
            3 => Drawn::Work(dice.between(0, 100)),
            _ => Drawn::Echo,
        };
        self.complete(drawn, made)
    }

    fn complete(&mut self, drawn: Drawn, made: &mut u64) -> Call {
        let dice = &mut self.dice;
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
}
