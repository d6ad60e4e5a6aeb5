//! A client thread in a hunt that uses the interfaces of applications: single calls, batches and futures, some with
//! deadlines of their own, some cancelled; and a region of the server in between.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin::{CallError, CallFuture, Client, LocalCall, LocalClient, LocalDriver, RemoteRegion};
use dunlin_verbs::thread;

use super::caller::{draw_request, judge, Drawn, Load, Log, Part, LATER, NESTED};
use crate::dice::{bytes_of, Dice};

/// The region that servers grant.
pub(super) const REGION: &str = "cells";
/// Bytes of it that belong to one thread: a counter, and a place to write to.
pub(super) const CELL_BYTES: usize = 128;
/// Number of threads with such a place.
pub(super) const CELLS: usize = 16;
/// Longest sleep of a thread with futures outstanding: their wakers end it.
const NAP: Duration = Duration::from_millis(50);

/// The calling interface of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    /// A pipeline of its own: [`super::caller::Caller`].
    Pipeline,
    Calls,
    Batches,
    Futures,
    /// Futures of one thread.
    Local,
}

impl Front {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        match dice.between(0, 6) {
            0 | 1 => Self::Pipeline,
            2 => Self::Calls,
            3 => Self::Batches,
            4 => Self::Local,
            _ => Self::Futures,
        }
    }
}

/// State of a thread.
pub(super) struct Fronts {
    pub(super) number: u64,
    pub(super) front: Front,
    pub(super) client: Client,
    pub(super) load: Load,
    pub(super) dice: Dice,
    pub(super) log: Arc<Mutex<Log>>,
    /// Number of calls after which it closes the client, for all its threads.
    pub(super) closes_after: Option<u64>,
    /// Number of connections that it may still lose, each of which takes seconds; none when a call was not answered
    /// within the client's deadline, because a server that does not answer at all will not answer the next time.
    pub(super) lives: usize,
}

/// An outstanding future.
struct Out {
    drawn: Drawn,
    hurried: bool,
    future: Made,
}

/// How the future was created.
enum Made {
    Any(CallFuture),
    Local(LocalCall),
}

impl Future for Made {
    type Output = Result<Vec<u8>, CallError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Any(call) => Pin::new(call).poll(context).map_ok(|reply| reply.to_vec()),
            Self::Local(call) => Pin::new(call).poll(context).map_ok(|reply| reply.to_vec()),
        }
    }
}

/// The client of one thread, and the driver of its calls.
struct Local {
    client: LocalClient,
    driver: LocalDriver,
    is_lost: bool,
}

impl Fronts {
    pub(super) fn run(mut self) {
        self.call_all();
        let log = Arc::clone(&self.log);
        // Its lanes end with it, in the thread's own virtual time.
        drop(self);
        log.lock().expect("nobody panicked").ended = true;
    }

    fn call_all(&mut self) {
        let mut cell = Cell::default();
        let mut made = 0;
        let mut out = VecDeque::new();
        let mut local = None;
        while (made < self.load.calls || !out.is_empty()) && self.lives > 0 {
            if self.closes_after.is_some_and(|after| made >= after) {
                self.closes_after = None;
                self.client.close();
            }
            match self.front {
                Front::Batches => self.send_batch(&mut made),
                Front::Futures => self.turn_futures(&mut made, &mut out),
                Front::Local => self.turn_local(&mut made, &mut out, &mut local),
                Front::Calls | Front::Pipeline => self.call_one(&mut made),
            }
            self.log().made = made;
            if self.dice.chance(1, 8) {
                self.use_region(&mut cell);
            }
            if self.dice.chance(1, self.load.rests) {
                thread::sleep(Duration::from_micros(self.dice.between(0, 400)));
            }
        }
    }

    fn log(&self) -> std::sync::MutexGuard<'_, Log> {
        self.log.lock().expect("nobody panicked")
    }

    /// The client for the next call: one of ten calls has a short deadline.
    fn hurried(&mut self) -> Option<Client> {
        let hurried = self.dice.chance(1, 10);
        let deadline = Duration::from_micros(self.dice.between(5, 2_000));
        hurried.then(|| self.client.within(deadline))
    }

    fn draw(&mut self, made: &mut u64) -> Drawn {
        let mut drawn = draw_request(self.number, *made, self.load.longest, &mut self.dice);
        match (drawn.handler, self.front) {
            // A call that waits for another server would delay the whole batch.
            (NESTED, Front::Batches) => drawn.handler = LATER,
            (NESTED, _) => drop(self.log().asked.insert(*made)),
            _ => {}
        }
        *made += 1;
        drawn
    }

    fn judge(&mut self, drawn: &Drawn, hurried: bool, ended: Result<&[u8], CallError>) {
        self.lives = match &ended {
            Err(CallError::DeadlineExceeded { .. }) if !hurried => 0,
            Err(CallError::ConnectionLost { .. } | CallError::Connect(_)) => {
                self.lives.saturating_sub(1)
            }
            _ => self.lives,
        };
        match ended {
            // The call had a short deadline, and reports it.
            Err(CallError::DeadlineExceeded { .. } | CallError::Expired { .. }) if hurried => {}
            ended => {
                let which = (drawn.call, drawn.handler);
                judge(&mut self.log(), self.number, which, ended);
            }
        }
    }

    fn call_one(&mut self, made: &mut u64) {
        let drawn = self.draw(made);
        let hurried = self.hurried();
        let client = hurried.as_ref().unwrap_or(&self.client);
        let ended = client.call(drawn.handler, &drawn.payload);
        let hurried = hurried.is_some();
        self.judge(&drawn, hurried, as_bytes(&ended));
    }

    fn send_batch(&mut self, made: &mut u64) {
        let count = self.dice.between(1, 2 * self.load.outstanding as u64);
        let all: Vec<Drawn> = (0..count).map(|_| self.draw(made)).collect();
        let hurried = self.hurried();
        let client = hurried.as_ref().unwrap_or(&self.client);
        let mut batch = client.batch();
        for drawn in &all {
            batch = batch.call(drawn.handler, &drawn.payload);
        }
        match batch.send() {
            Ok(answers) if answers.len() == all.len() => {
                let hurried = hurried.is_some();
                for (drawn, ended) in all.iter().zip(&answers) {
                    self.judge(drawn, hurried, as_bytes(ended));
                }
            }
            Ok(answers) => {
                let what = format!("{} answers to a batch of {count}", answers.len());
                self.log().wrong.push(what);
            }
            Err(error) => {
                let hurried = hurried.is_some();
                self.judge(&all[0], hurried, Err(error));
            }
        }
    }

    /// Creates futures up to the maximum outstanding, cancels some, and waits for one.
    fn turn_futures(&mut self, made: &mut u64, out: &mut VecDeque<Out>) {
        while out.len() < self.load.outstanding && *made < self.load.calls {
            let drawn = self.draw(made);
            let hurried = self.hurried();
            let client = hurried.as_ref().unwrap_or(&self.client);
            let future = match self.dice.chance(1, 4) {
                false => Made::Any(client.call_async(drawn.handler, &drawn.payload)),
                true => match block_on(client.ready()) {
                    Ok(permit) => Made::Any(permit.call(drawn.handler, &drawn.payload)),
                    Err(error) => {
                        self.judge(&drawn, hurried.is_some(), Err(error));
                        continue;
                    }
                },
            };
            let hurried = hurried.is_some();
            out.push_back(Out {
                drawn,
                hurried,
                future,
            });
        }
        self.give_up_one(out);
        if let Some((one, ended)) = block_on(First(out)) {
            self.judge_future(&one, &ended);
        }
    }

    /// Like [`Self::turn_futures`], with a client of this thread, which is replaced when it has lost its connection.
    fn turn_local(&mut self, made: &mut u64, out: &mut VecDeque<Out>, local: &mut Option<Local>) {
        if local.is_none() {
            match self.client.local() {
                Ok((client, driver)) => {
                    *local = Some(Local {
                        client,
                        driver,
                        is_lost: false,
                    });
                }
                Err(error) => {
                    let drawn = self.draw(made);
                    self.judge(&drawn, false, Err(CallError::Connect(Arc::new(error))));
                }
            }
        }
        let Some(Local {
            client,
            driver,
            is_lost,
        }) = local
        else {
            return;
        };
        while !*is_lost && out.len() < self.load.outstanding && *made < self.load.calls {
            let drawn = self.draw(made);
            let hurried = self.dice.chance(1, 10);
            let deadline = Duration::from_micros(self.dice.between(5, 2_000));
            let future = match hurried {
                true => client
                    .within(deadline)
                    .call_async(drawn.handler, &drawn.payload),
                false => client.call_async(drawn.handler, &drawn.payload),
            };
            out.push_back(Out {
                drawn,
                hurried,
                future: Made::Local(future),
            });
        }
        self.give_up_one(out);
        if let Some((one, ended)) = block_on(driver.run_until(First(out))) {
            *is_lost |= matches!(
                ended,
                Err(CallError::ConnectionLost { .. } | CallError::Connect(_) | CallError::Closed)
            );
            self.judge_future(&one, &ended);
        }
        if *is_lost && out.is_empty() {
            *local = None;
        }
    }

    /// Cancels one of the futures now and then.
    fn give_up_one(&mut self, out: &mut VecDeque<Out>) {
        if out.len() > 1 && self.dice.chance(1, 12) {
            let place = self.dice.between(0, out.len() as u64 - 1) as usize;
            drop(out.remove(place));
        }
    }

    fn judge_future(&mut self, one: &Out, ended: &Result<Vec<u8>, CallError>) {
        // Futures of other threads of the client may take all places.
        if !matches!(ended, Err(CallError::TooManyOutstanding { .. })) {
            self.judge(&one.drawn, one.hurried, as_bytes(ended));
        }
    }

    /// Adds to its counter, or writes its place and reads it back.
    fn use_region(&mut self, cell: &mut Cell) {
        if self.number as usize >= CELLS || cell.refused {
            return;
        }
        let ended = cell.used(&self.client, self.number, &mut self.dice);
        let mut log = self.log();
        match ended {
            Ok(None) => {}
            Ok(Some(wrong)) => log.wrong.push(wrong),
            Err(CallError::OneSidedUnsupported) => cell.refused = true,
            // Futures may have taken all places; the operation was not sent.
            Err(CallError::TooManyOutstanding { .. }) => {}
            Err(error) => {
                // Operations in flight may or may not have happened.
                *cell = Cell::default();
                cell.refused = matches!(error, CallError::DeadlineExceeded { .. });
                log.errors.push((Part::Region, error));
            }
        }
    }
}

fn as_bytes<R: AsRef<[u8]>>(ended: &Result<R, CallError>) -> Result<&[u8], CallError> {
    ended.as_ref().map(AsRef::as_ref).map_err(Clone::clone)
}

/// A thread's knowledge of its part of the region.
#[derive(Default)]
struct Cell {
    region: Option<RemoteRegion>,
    /// Values of its counter and its place; `None` if unknown.
    counter: Option<u64>,
    written: Option<Vec<u8>>,
    refused: bool,
}

impl Cell {
    /// Carries out one operation; returns what was wrong.
    fn used(
        &mut self,
        client: &Client,
        number: u64,
        dice: &mut Dice,
    ) -> Result<Option<String>, CallError> {
        let waits = dice.chance(1, 2);
        let region = match (&self.region, waits) {
            (Some(region), _) => region.clone(),
            (None, true) => client.attach(REGION)?,
            (None, false) => block_on(client.attach_async(REGION))?,
        };
        self.region = Some(region.clone());
        let at = number * CELL_BYTES as u64;
        if dice.chance(1, 2) {
            let found = match waits {
                true => region.fetch_add(at, 1)?,
                false => block_on(region.fetch_add_async(at, 1))
                    .map(|reply| u64::from_ne_bytes(reply[..].try_into().unwrap_or_default()))?,
            };
            let expected = self.counter.replace(found + 1);
            return Ok(expected
                .filter(|&expected| expected != found)
                .map(|expected| format!("its counter was {found}, not {expected}")));
        }
        let length = dice.between(1, CELL_BYTES as u64 - 8) as usize;
        let found = match waits {
            true => region.read(at + 8, CELL_BYTES - 8)?,
            false => block_on(region.read_async(at + 8, CELL_BYTES - 8))?,
        };
        let wrong = self
            .written
            .as_ref()
            .filter(|written| found[..written.len()] != written[..])
            .map(|_| "what it read is not what it wrote".to_owned());
        let bytes = bytes_of(number, dice.next() >> 32, length);
        match waits {
            true => region.write(at + 8, &bytes)?,
            false => block_on(region.write_async(at + 8, &bytes)).map(drop)?,
        }
        self.written = Some(bytes);
        Ok(wrong)
    }
}

/// Waits for the first of some futures that ends; `None` if there are none.
struct First<'a>(&'a mut VecDeque<Out>);

impl Future for First<'_> {
    type Output = Option<(Out, Result<Vec<u8>, CallError>)>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let out = &mut *self.0;
        for place in 0..out.len() {
            if let Poll::Ready(ended) = Pin::new(&mut out[place].future).poll(context) {
                return Poll::Ready(out.remove(place).map(|one| (one, ended)));
            }
        }
        match out.is_empty() {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }
}

/// Waits for a future on the calling thread.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = thread::waker();
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(NAP),
        }
    }
}
