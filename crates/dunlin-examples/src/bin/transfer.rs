//! Transactions: money is moved between accounts, on machines that are named, or in the memory of this process.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin transfer                               # without any server
//! cargo run -p dunlin-examples --bin transfer -- dunlin://127.0.0.1:7420    # `dunlin serve store` there
//! ```

use dunlin::txn::{Database, DatabaseError, Table};
use dunlin_examples::Failure;

// ANCHOR: transfer
/// What the function returns when the money does not suffice: any error that a `DatabaseError` can become.
#[derive(Debug)]
enum Refused {
    NotEnough { has: i64 },
    Database(DatabaseError),
}

impl From<DatabaseError> for Refused {
    fn from(error: DatabaseError) -> Self {
        Self::Database(error)
    }
}

fn transfer(
    bank: &Database,
    accounts: &Table<u64, i64>,
    (from, to): (u64, u64),
    amount: i64,
) -> Result<(), Refused> {
    // May run several times: others' transactions can stand in its way.
    bank.run(|t| {
        let has = t.get(accounts, &from)?.unwrap_or(0);
        if has < amount {
            return Err(Refused::NotEnough { has }); // nothing is changed
        }
        let other = t.get(accounts, &to)?.unwrap_or(0);
        t.put(accounts, &from, &(has - amount))?;
        t.put(accounts, &to, &(other + amount))?;
        Ok(())
    })
}
// ANCHOR_END: transfer

fn main() -> Result<(), Failure> {
    // ANCHOR: open
    let addresses: Vec<String> = std::env::args().skip(1).collect();
    let bank = match addresses.is_empty() {
        true => Database::in_process(), // for tests: every table that is asked for is there
        false => Database::open(&addresses)?,
    };
    let accounts: Table<u64, i64> = bank.table("accounts")?;
    bank.run(|t| {
        t.put(&accounts, &1, &100)?;
        t.put(&accounts, &2, &0)
    })?;
    // ANCHOR_END: open
    for amount in [30, 200] {
        match transfer(&bank, &accounts, (1, 2), amount) {
            Ok(()) => println!("moved {amount}"),
            Err(Refused::NotEnough { has }) => {
                println!("{amount} cannot be moved, there are {has}")
            }
            Err(Refused::Database(error)) => return Err(error.into()),
        }
    }
    // ANCHOR: read
    let held = bank.read(|t| t.get_many(&accounts, [&1, &2]))?;
    println!("{held:?}");
    // ANCHOR_END: read
    Ok(())
}
