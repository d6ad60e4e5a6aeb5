//! A bank on three machines, each with a copy of all accounts: one of them is killed under load, the others go on
//! without it, and it comes back.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dunlin::txn::membership::{Configuration, Epoch, Role};
use dunlin::txn::{Database, DatabaseError, Table, Transaction};
use serde::Serialize;

use super::{device, Args};
use crate::commands::Failure;
use crate::kv_load::peer::Folder;
use crate::services::child::ServerProcess;
use crate::{interrupt, output};

const MACHINES: u16 = 3;
/// Threads that move money, one transaction at a time.
const CLIENTS: u64 = 4;
/// The initial balance of each account.
const HELD: i64 = 1000;
/// Number of accounts that are opened, or counted, by one transaction.
const AT_ONCE: u64 = 200;
/// Seconds of silence after which the others go on without a machine.
const REPLACE_AFTER: &str = "0.5";
/// Interval of the checks of progress.
const TICK: Duration = Duration::from_millis(10);
/// Time limit that no successful step reaches.
const BOUND: Duration = Duration::from_secs(30);

/// The JSON object. What Ctrl-C left out is null.
#[derive(Debug, Serialize)]
struct Found {
    what: &'static str,
    accounts: u64,
    machines: u16,
    /// Payments per second while all machines were running.
    before_per_s: f64,
    /// Time from the kill of a machine until it had a copy of everything again.
    away_ms: Option<u64>,
    away_per_s: Option<f64>,
    /// The longest time within that without a payment.
    pause_ms: Option<u64>,
    after_per_s: Option<f64>,
    payments: u64,
    /// The sum of all accounts, and what it should be.
    money: i64,
    money_expected: i64,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let folder = Folder::new("demo-txn")?;
    let accounts = u64::from(args.entries).max(2);
    let machine = |number| ServerProcess::start("store", &arguments(args, number, folder.path()));
    let mut machines = (0..MACHINES).map(machine).collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<String> = machines
        .iter()
        .map(|one| one.address().to_string())
        .collect();
    let mut builder = Database::builder().deadline(BOUND);
    if let Some(device) = args.connect.device() {
        builder = builder.device(device);
    }
    let database = builder.open(&addresses).map_err(Failure::new)?;
    let table = database.table("accounts").map_err(Failure::new)?;
    let bank = Bank {
        database,
        table,
        accounts,
        over: AtomicBool::new(false),
        payments: AtomicU64::new(0),
    };
    let bar = output::progress_bar();
    bar.set_message("opening accounts");
    let opened = bank.open(|done| bar.set_position((done * 1000.0) as u64));
    opened.inspect_err(|_| bar.finish_and_clear())?;
    let third = args.seconds / 3;
    let (before, away, after, known) = std::thread::scope(|scope| {
        let bank = &bank;
        let _over = Over(&bank.over);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|seed| scope.spawn(move || bank.pay(seed)))
            .collect();
        bar.set_message("three machines");
        let before = bank.watch(|since| since >= third)?;
        let known = bank
            .database
            .configuration()
            .map_or(Epoch::FIXED, |of| of.epoch);
        // Beyond this nothing is shown of what Ctrl-C cuts short.
        let end = |before, away, after| {
            bank.over.store(true, Ordering::Relaxed);
            for client in clients {
                client
                    .join()
                    .map_err(|_| Failure::new("a client thread ended early"))??;
            }
            Ok::<_, Failure>((before, away, after, known))
        };
        if interrupt::came() {
            return end(before, None, None);
        }
        bar.set_message("one of them is killed");
        machines.remove(1).kill()?;
        let mut again = None;
        let away = bank.watch(|since| {
            if since >= third && again.is_none() {
                bar.set_message("it comes back");
                again = Some(machine(1));
            }
            matches!(again, Some(Err(_)))
                || (again.is_some() && bank.is_whole_after(known))
                || since >= BOUND
        })?;
        again
            .transpose()?
            .into_iter()
            .for_each(|one| machines.push(one));
        if interrupt::came() {
            return end(before, None, None);
        }
        bar.set_message("three machines again");
        let after = bank.watch(|since| since >= third)?;
        end(before, Some(away), Some(after))
    })?;
    let money = bank.count()?;
    bar.finish_and_clear();
    let whole = bank.is_whole_after(known);
    let found = Found {
        what: "txn",
        accounts,
        machines: MACHINES,
        before_per_s: before.rate(),
        away_ms: away.as_ref().map(|away| away.time.as_millis() as u64),
        away_per_s: away.as_ref().map(Watched::rate),
        pause_ms: away.as_ref().map(|away| away.pause.as_millis() as u64),
        after_per_s: after.as_ref().map(Watched::rate),
        payments: bank.payments.load(Ordering::Relaxed),
        money,
        money_expected: accounts as i64 * HELD,
    };
    drop(bank);
    machines.into_iter().try_for_each(ServerProcess::stop)?;
    print(&found, args.json)?;
    if found.money != found.money_expected {
        return Err(Failure::new("the total amount of money has changed"));
    }
    if !whole && !interrupt::came() {
        return Err(Failure::new("the killed machine did not recover in time"));
    }
    Ok(())
}

fn arguments(args: &Args, number: u16, folder: &Path) -> Vec<String> {
    let rows = u64::from(args.entries) + u64::from(args.entries) / 4 + 100;
    let mut all = device(args);
    let mut say = |name: &str, value: String| all.extend([name.to_owned(), value]);
    say("--machine", number.to_string());
    say("--machines", MACHINES.to_string());
    say("--table", format!("accounts:{rows}:8"));
    say("--membership", folder.to_string_lossy().into_owned());
    say("--replace-after", REPLACE_AFTER.to_owned());
    all
}

fn print(found: &Found, json: bool) -> Result<(), Failure> {
    if json {
        return output::print_json(found);
    }
    let mut table = output::table(&["a bank on three machines", ""]);
    let milliseconds = |ms: Option<u64>| {
        let nanoseconds = ms.map(|ms| ms as f64 * 1e6);
        output::measured(nanoseconds, output::nanoseconds)
    };
    table.add_row(["accounts", &found.accounts.to_string()]);
    table.add_row([
        "payments, all machines there",
        &output::rate(found.before_per_s),
    ]);
    table.add_row([
        "payments, one killed and not whole again",
        &output::measured(found.away_per_s, output::rate),
    ]);
    table.add_row(["that took", &milliseconds(found.away_ms)]);
    table.add_row([
        "longest time of it without a payment",
        &milliseconds(found.pause_ms),
    ]);
    let after = output::measured(found.after_per_s, output::rate);
    table.add_row(["payments afterwards", &after]);
    table.add_row(["money in all accounts", &found.money.to_string()]);
    table.add_row(["money that was put in", &found.money_expected.to_string()]);
    output::print(table)
}

/// The load ends also when a step fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Bank {
    database: Database,
    table: Table<u64, i64>,
    accounts: u64,
    over: AtomicBool,
    payments: AtomicU64,
}

/// What was done while watching.
struct Watched {
    payments: u64,
    time: Duration,
    pause: Duration,
}

impl Watched {
    fn rate(&self) -> f64 {
        self.payments as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

impl Bank {
    /// Opens all accounts, or fails when Ctrl-C comes.
    fn open(&self, mut show: impl FnMut(f64)) -> Result<(), Failure> {
        let mut first = 0;
        while first < self.accounts {
            interrupt::check()?;
            let last = (first + AT_ONCE).min(self.accounts);
            self.settled(|t| {
                (first..last).try_for_each(|account| t.put(&self.table, &account, &HELD))
            })?;
            first = last;
            show(first as f64 / self.accounts as f64);
        }
        Ok(())
    }

    fn count(&self) -> Result<i64, Failure> {
        let mut money = 0;
        for first in (0..self.accounts).step_by(AT_ONCE as usize) {
            let keys: Vec<u64> = (first..(first + AT_ONCE).min(self.accounts)).collect();
            let held = self.database.read(|t| t.get_many(&self.table, &keys));
            let held: Vec<Option<i64>> =
                held.map_err(|error: DatabaseError| Failure::new(error))?;
            money += held.into_iter().flatten().sum::<i64>();
        }
        Ok(money)
    }

    /// Once or twice, where the outcome was unknown: the same values are put.
    fn settled(
        &self,
        change: impl Fn(&mut Transaction) -> Result<(), DatabaseError>,
    ) -> Result<(), Failure> {
        loop {
            match self.database.run(&change) {
                Err(DatabaseError::UnknownOutcome { .. }) => {}
                other => return other.map_err(Failure::new),
            }
        }
    }

    /// Moves money from account to account.
    fn pay(&self, seed: u64) -> Result<(), Failure> {
        let mut random = fastrand::Rng::with_seed(seed);
        while !self.over.load(Ordering::Relaxed) && !interrupt::came() {
            let from = random.u64(0..self.accounts);
            let to = (from + random.u64(1..self.accounts)) % self.accounts;
            let amount = random.i64(1..10);
            let paid: Result<(), DatabaseError> = self.database.run(|t| {
                let held = t.get(&self.table, &from)?.unwrap_or(0);
                let other = t.get(&self.table, &to)?.unwrap_or(0);
                t.put(&self.table, &from, &(held - amount))?;
                t.put(&self.table, &to, &(other + amount))
            });
            match paid {
                Ok(()) => drop(self.payments.fetch_add(1, Ordering::Relaxed)),
                // It was made whole or not at all.
                Err(DatabaseError::UnknownOutcome { .. }) => {}
                Err(error) => return Err(Failure::new(error)),
            }
        }
        Ok(())
    }

    /// Whether all machines have a copy of everything, in a later epoch than this one.
    fn is_whole_after(&self, epoch: Epoch) -> bool {
        let known = self.database.configuration();
        let whole = |of: Configuration| {
            of.epoch > epoch
                && of.serving
                && of.members.iter().all(|member| member.role == Role::Whole)
        };
        known.is_some_and(whole)
    }

    /// Watches until `is_enough` returns `true`, which is given the time since the beginning.
    fn watch(&self, mut is_enough: impl FnMut(Duration) -> bool) -> Result<Watched, Failure> {
        let done = || self.payments.load(Ordering::Relaxed);
        let (began, first) = (Instant::now(), done());
        let (mut last, mut moved, mut pause) = (first, began, Duration::ZERO);
        while !is_enough(began.elapsed()) && !interrupt::came() {
            std::thread::sleep(TICK);
            let now = done();
            if now > last {
                (last, moved) = (now, Instant::now());
            }
            pause = pause.max(moved.elapsed());
        }
        Ok(Watched {
            payments: done() - first,
            time: began.elapsed(),
            pause,
        })
    }
}
