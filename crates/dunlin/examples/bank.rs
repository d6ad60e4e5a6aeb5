//! A bank on three processes: threads move money between accounts, and in the end there is as much as before.
//!
//! ```text
//! cargo run --release --example bank
//! ```
//!
//! It starts itself three times more, as the machines of the database; each has a copy of every account.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use dunlin::txn::server::{StoreConfig, StoreServer, TableSpec};
use dunlin::txn::{Database, DatabaseError, Table};
use dunlin::Server;

const ACCOUNTS: u64 = 100;

fn machine(number: u16) -> Result<(), Box<dyn Error>> {
    let config = StoreConfig {
        machine: number,
        machines: 3,
        replicas: 3,
        tables: vec![TableSpec::new(0, "accounts", ACCOUNTS, 8)],
        one_sided_writes: false,
    };
    let store = StoreServer::serve(Server::bind("dunlin://127.0.0.1:0")?, config)?;
    println!("{}", store.server().address());
    // Until the one that started us ends.
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

fn transfer(
    bank: &Database,
    accounts: &Table<u64, i64>,
    from: u64,
    to: u64,
) -> Result<bool, DatabaseError> {
    bank.run(|t| {
        let held = t.get_many(accounts, [&from, &to])?;
        let (left, sum) = (held[0].unwrap_or(0) - 10, held[1].unwrap_or(0) + 10);
        if left < 0 || from == to {
            return Ok(false);
        }
        t.put(accounts, &from, &left)?;
        t.put(accounts, &to, &sum)?;
        Ok(true)
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(number) = std::env::args().nth(1) {
        return machine(number.parse()?);
    }
    let (mut machines, mut addresses) = (Vec::new(), Vec::new());
    for number in ["0", "1", "2"] {
        let mut command = Command::new(std::env::current_exe()?);
        let mut machine = command
            .arg(number)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(machine.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        addresses.push(line.trim().to_owned());
        machines.push(machine);
    }
    let bank = Database::open(&addresses)?;
    let accounts: Table<u64, i64> = bank.table("accounts")?;
    bank.run(|t| (0..ACCOUNTS).try_for_each(|account| t.put(&accounts, &account, &100)))?;
    let moved: Vec<Result<u64, DatabaseError>> = std::thread::scope(|scope| {
        let work = |thread: u64| {
            let (bank, accounts) = (&bank, &accounts);
            scope.spawn(move || {
                let pairs = (0..200).map(|n| (n * 7 % ACCOUNTS, (n * 13 + thread) % ACCOUNTS));
                pairs
                    .map(|(from, to)| transfer(bank, accounts, from, to).map(u64::from))
                    .sum()
            })
        };
        let threads: Vec<_> = (0..4).map(work).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread of the bank"))
            .collect()
    });
    let moved: u64 = moved.into_iter().sum::<Result<u64, DatabaseError>>()?;
    let keys: Vec<u64> = (0..ACCOUNTS).collect();
    let held: Result<_, DatabaseError> = bank.read(|t| t.get_many(&accounts, &keys));
    println!(
        "{moved} transfers; {} in {ACCOUNTS} accounts",
        held?.into_iter().flatten().sum::<i64>()
    );
    drop(bank);
    machines.into_iter().try_for_each(|mut machine| {
        drop(machine.stdin.take());
        machine.wait().map(drop)
    })?;
    Ok(())
}
