//! A bank on three processes: threads move money between accounts, and in the end there is as much as before.
//!
//! ```text
//! cargo run --release -p dunlin --example bank
//! ```
//!
//! It starts itself three times more, as the machines of the database; each has a copy of every account.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use dunlin::txn::server::{StoreConfig, StoreServer, TableSpec};
use dunlin::txn::{Database, DatabaseError, Table};
use dunlin::Server;

type Accounts = Table<u64, i64>;

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

fn transfer(bank: &Database, accounts: &Accounts, from: u64, to: u64) -> Result<(), DatabaseError> {
    bank.run(|t| {
        let held = t.get_many(accounts, [&from, &to])?;
        let (left, sum) = (held[0].unwrap_or(0) - 10, held[1].unwrap_or(0) + 10);
        if left >= 0 && from != to {
            t.put(accounts, &from, &left)?;
            t.put(accounts, &to, &sum)?;
        }
        Ok(())
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(number) = std::env::args().nth(1) {
        return machine(number.parse()?);
    }
    let (mut machines, mut addresses) = (Vec::new(), Vec::new());
    for number in ["0", "1", "2"] {
        let mut machine = Command::new(std::env::current_exe()?);
        machine
            .arg(number)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut machine = machine.spawn()?;
        let mut line = String::new();
        BufReader::new(machine.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        addresses.push(line.trim().to_owned());
        machines.push(machine);
    }
    let bank = Database::open(&addresses)?;
    let accounts: Accounts = bank.table("accounts")?;
    bank.run(|t| (0..ACCOUNTS).try_for_each(|account| t.put(&accounts, &account, &100)))?;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (bank, accounts) = (&bank, &accounts);
            scope.spawn(move || {
                for n in 0..200 {
                    let (from, to) = (n * 7 % ACCOUNTS, (n * 13 + thread) % ACCOUNTS);
                    transfer(bank, accounts, from, to).expect("a transfer");
                }
            });
        }
    });
    let keys: Vec<u64> = (0..ACCOUNTS).collect();
    let held = bank.read(|t| t.get_many(&accounts, &keys))?;
    println!(
        "{} in all accounts",
        held.into_iter().flatten().sum::<i64>()
    );
    for mut machine in machines {
        drop(machine.stdin.take());
        machine.wait()?;
    }
    Ok(())
}
