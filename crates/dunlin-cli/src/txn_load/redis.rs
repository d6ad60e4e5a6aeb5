//! Redis, used as suits it best: a transaction that one command can do is that command, any other is a function of
//! Redis 7, which is executed alone and without a second round trip. All transactions of a thread are pipelined over
//! one connection. Redis never aborts a transaction because of others.

use std::path::Path;

use dunlin::txn::workload::{SmallBankTransaction, TatpTransaction};

use super::{ends, first, forwarding, row, typed, Drawn, Draws, Engine, Outcome};
use crate::commands::Failure;
use crate::interrupt;
use crate::kv_load::redis::Redis;
use crate::kv_load::{self, Answer};

/// The functions.
const FUNCTIONS: &str = include_str!("functions.lua");
/// Number of rows in flight while loading.
const LOADED_AT_ONCE: usize = 256;
/// Prefixes of the keys of a load's tables, by the table's number.
const SMALLBANK: [char; 2] = ['s', 'c'];
const TATP: [char; 5] = ['u', 'n', 'a', 'f', 'w'];
/// In the word of a transaction: nil as an answer says that it has declined. The rest is when it began.
const MAY_DECLINE: u64 = 1 << 63;

/// A connection.
#[derive(Debug)]
pub struct Connection(Redis);

impl Connection {
    /// Connects over the Unix socket.
    ///
    /// # Errors
    /// When the socket does not exist.
    pub fn open(socket: &Path) -> Result<Self, Failure> {
        Ok(Self(Redis::connect(socket)?))
    }

    /// Loads the functions and the initial rows.
    ///
    /// # Errors
    /// When Redis rejects them.
    pub fn load(&mut self, draws: &Draws, mut progress: impl FnMut(usize)) -> Result<(), Failure> {
        let words = ["FUNCTION", "LOAD", FUNCTIONS].map(str::as_bytes);
        self.0.submit_words(&words, 0);
        self.drain(0)?;
        for (done, (table, number, value)) in draws.rows().enumerate() {
            let (prefix, value) = match (draws, table) {
                (Draws::SmallBank(_), _) => (SMALLBANK[table], decimal(&value)),
                // By telephone number: the subscriber, who is a part of another key.
                (Draws::Tatp(_), 1) => (TATP[table], decimal(&value)),
                (Draws::Tatp(_), _) => (TATP[table], value.to_vec()),
            };
            let key = key(prefix, number);
            self.0.submit_words(&[b"SET", key.as_bytes(), &value], 0);
            if self.outstanding() >= LOADED_AT_ONCE {
                self.drain(LOADED_AT_ONCE / 2)?;
                progress(done);
                interrupt::check()?;
            }
        }
        self.drain(0)
    }

    /// Waits until at most this many are in flight.
    fn drain(&mut self, left: usize) -> Result<(), Failure> {
        let mut refused = false;
        while self.outstanding() > left {
            kv_load::Engine::wait(&mut self.0, &mut |_, answer| {
                refused |= answer == Answer::Failed;
            })?;
        }
        match refused {
            true => Err(Failure::new("Redis rejected what was to be loaded")
                .help("the functions of the load require Redis 7 or later")),
            false => Ok(()),
        }
    }
}

fn key(prefix: char, number: u64) -> String {
    format!("{prefix}{number}")
}

fn decimal(value: &[u8]) -> Vec<u8> {
    first(value).to_string().into_bytes()
}

impl Engine for Connection {
    fn submit(&mut self, transaction: &Drawn, began: u64) -> Result<(), Failure> {
        let mut words = Words(&mut self.0, began & !MAY_DECLINE);
        match *transaction {
            Drawn::SmallBank(one) => smallbank(&mut words, one),
            Drawn::Tatp(one) => tatp(&mut words, one),
        }
        Ok(())
    }

    fn outstanding(&self) -> usize {
        kv_load::Engine::outstanding(&self.0)
    }

    fn wait(&mut self, take: &mut dyn FnMut(u64, Outcome)) -> Result<(), Failure> {
        kv_load::Engine::wait(&mut self.0, &mut |tag, answer| {
            let outcome = match answer {
                Answer::Failed => Outcome::Failed("Redis returned an error".to_owned()),
                Answer::Missing if tag & MAY_DECLINE != 0 => Outcome::Declined,
                _ => Outcome::Committed,
            };
            take(tag & !MAY_DECLINE, outcome);
        })
    }
}

/// Where commands go.
struct Words<'a>(&'a mut Redis, u64);

impl Words<'_> {
    fn command(&mut self, words: &[&str]) {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.0.submit_words(&words, self.1);
    }

    fn function(&mut self, name: &str, keys: &[&str], arguments: &[&[u8]]) {
        let count = keys.len().to_string();
        let mut words: Vec<&[u8]> = vec![b"FCALL", name.as_bytes(), count.as_bytes()];
        words.extend(keys.iter().map(|key| key.as_bytes()));
        words.extend(arguments);
        self.0.submit_words(&words, self.1 | MAY_DECLINE);
    }
}

fn smallbank(words: &mut Words<'_>, transaction: SmallBankTransaction) {
    let (savings, checking) = (|of| key('s', of), |of| key('c', of));
    match transaction {
        SmallBankTransaction::Amalgamate { from, to } => {
            let keys = [&*savings(from), &*checking(from), &*checking(to)];
            words.function("amalgamate", &keys, &[]);
        }
        SmallBankTransaction::Balance(of) => {
            words.command(&["MGET", &savings(of), &checking(of)]);
        }
        SmallBankTransaction::DepositChecking(to, amount) => {
            words.command(&["INCRBY", &checking(to), &amount.to_string()]);
        }
        SmallBankTransaction::SendPayment { from, to, amount } => {
            let amount = amount.to_string();
            let keys = [&*checking(from), &*checking(to)];
            words.function("send_payment", &keys, &[amount.as_bytes()]);
        }
        SmallBankTransaction::TransactSavings(to, amount) => {
            words.command(&["INCRBY", &savings(to), &amount.to_string()]);
        }
        SmallBankTransaction::WriteCheck(of, amount) => {
            let amount = amount.to_string();
            let keys = [&*savings(of), &*checking(of)];
            words.function("write_check", &keys, &[amount.as_bytes()]);
        }
    }
}

fn tatp(words: &mut Words<'_>, transaction: TatpTransaction) {
    let facility = |s, kind| key('f', typed(s, kind));
    match transaction {
        TatpTransaction::GetSubscriber(s) => words.command(&["GET", &key('u', s)]),
        TatpTransaction::GetAccess(s, kind) => {
            words.command(&["GET", &key('a', typed(s, kind))]);
        }
        TatpTransaction::GetDestination(s, kind, start) => {
            let rows = (0..=start).map(|start| key('w', forwarding(s, kind, start)));
            let keys: Vec<String> = std::iter::once(facility(s, kind)).chain(rows).collect();
            let all = std::iter::once("MGET").chain(keys.iter().map(String::as_str));
            words.command(&all.collect::<Vec<_>>());
        }
        TatpTransaction::UpdateSubscriber {
            subscriber: s,
            facility: kind,
            bit,
            data,
        } => {
            let keys = [&*key('u', s), &*facility(s, kind)];
            let rows: [&[u8]; 2] = [&row::<40>(bit), &row::<8>(data)];
            words.function("update_subscriber", &keys, &rows);
        }
        TatpTransaction::UpdateLocation(s, location) => {
            words.function("update_location", &[&key('n', s)], &[&row::<40>(location)]);
        }
        TatpTransaction::InsertForwarding(s, kind, start) => {
            let place = key('w', forwarding(s, kind, start));
            let keys = [&*key('n', s), &*facility(s, kind), &*place];
            words.function("insert_forwarding", &keys, &[&row::<16>(ends(start))]);
        }
        TatpTransaction::DeleteForwarding(s, kind, start) => {
            let place = key('w', forwarding(s, kind, start));
            words.function("delete_forwarding", &[&key('n', s), &place], &[]);
        }
    }
}
