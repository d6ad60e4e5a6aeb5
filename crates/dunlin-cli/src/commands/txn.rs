//! `dunlin txn`: runs transactions by hand.

use std::io::{BufRead, IsTerminal};
use std::time::Duration;

use dunlin::txn::membership::Role;
use dunlin::txn::{Database, DatabaseError, Outcome, Table, Transaction};
use dunlin::Address;

use super::perf::parse_seconds;
use super::{connect, Failure};
use crate::output;

/// Run transactions by hand
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Operations, all of which form one transaction:\n  \
  get TABLE KEY           print the value, or that there is none\n  \
  put TABLE KEY VALUE     set the value\n  \
  add TABLE KEY NUMBER    add to the value, or to 0 if there is none, and print the sum\n  \
  del TABLE KEY           remove the key\n\
Without operations, each line of standard input is a transaction. Keys are numbers.\n\n\
Examples (with `dunlin serve store --table accounts:10000:8` in another shell):\n  \
  dunlin txn put accounts 1 100\n  \
  dunlin txn add accounts 1 -30 add accounts 2 30\n  \
  dunlin txn get accounts 1 get accounts 2\n  \
  dunlin txn --values text put names 7 dunlin\n  \
  dunlin txn --machines                        the members, where machines replace each other")]
pub struct Args {
    /// Address of a machine of the database; repeat for each
    #[arg(
        long,
        default_value = "dunlin://127.0.0.1:7400",
        value_name = "ADDRESS"
    )]
    address: Vec<Address>,
    /// Protocol for validation, logging and commit
    #[arg(long, default_value = "auto", value_parser = ["fasst", "flocktx", "scaletx", "scaletx-o", "auto"])]
    protocol: String,
    /// Type of the values
    #[arg(long, value_enum, default_value_t = Values::Number)]
    values: Values,
    /// Seconds to retry a transaction that others or a failing machine keep from committing
    #[arg(long, default_value = "5", value_parser = parse_seconds, value_name = "SECONDS", allow_negative_numbers = true)]
    within: Duration,
    /// Print the members, and run no transaction
    #[arg(long, conflicts_with = "operations")]
    machines: bool,
    #[command(flatten)]
    connect: connect::Options,
    /// Operations of the transaction
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPERATION"
    )]
    operations: Vec<String>,
}

/// The type of the values of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Values {
    /// Integers of 8 bytes, as in a `Table<u64, i64>`
    Number,
    /// Text, as in a `Table<u64, String>`
    Text,
}

#[derive(Debug)]
enum Operation {
    Get,
    Put(Vec<u8>),
    Add(i64),
    Delete,
}

/// An operation with its table and key.
#[derive(Debug)]
struct Step {
    table: String,
    key: u64,
    operation: Operation,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<(), Failure> {
    let steps = parse(&args.operations, args.values).map_err(Failure::usage)?;
    let client = args.connect.builder()?;
    let builder = Database::builder().protocol(&args.protocol);
    let addresses = args.address.iter().map(Address::to_string);
    let database = builder.client(|_| client).open(addresses);
    let database = database.map_err(Failure::new)?.within(args.within);
    if args.machines {
        return machines(&database);
    }
    if !steps.is_empty() {
        return transact(&database, &steps, args.values);
    }
    let mut failed = None;
    let input = std::io::stdin();
    let by_hand = input.is_terminal();
    for line in input.lock().lines() {
        let words: Vec<String> = line?.split_whitespace().map(str::to_owned).collect();
        let steps = parse(&words, args.values).map_err(Failure::usage);
        let done = steps.and_then(|steps| transact(&database, &steps, args.values));
        match done {
            // At a terminal the failure is only printed; otherwise the command also fails in the end.
            Err(failure) if by_hand => output::note(failure.message()),
            Err(failure) => {
                output::note(format_args!("error: {}", failure.message()));
                failed.get_or_insert_with(|| Failure::new("not all transactions have committed"));
            }
            Ok(()) => {}
        }
    }
    failed.map_or(Ok(()), Err)
}

fn parse(words: &[String], values: Values) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut words = words.iter();
    while let Some(name) = words.next() {
        let mut next = |what: &str| {
            let word = words
                .next()
                .ok_or_else(|| format!("'{name}' is missing its {what}"));
            word.cloned()
        };
        let number = |what: &str, word: &str| -> Result<i64, String> {
            let wrong = |_| format!("the {what} '{word}' is not a 64-bit integer");
            word.parse().map_err(wrong)
        };
        if !["get", "put", "add", "del"].contains(&name.as_str()) {
            return Err(format!(
                "unknown operation '{name}'; available: get, put, add, del"
            ));
        }
        let (table, key) = (next("table")?, next("key")?);
        let key = key
            .parse()
            .map_err(|_| format!("the key '{key}' is not a number from 0 to {}", u64::MAX))?;
        let operation = match name.as_str() {
            "get" => Operation::Get,
            "del" => Operation::Delete,
            "add" => Operation::Add(number("number", &next("number")?)?),
            _ => Operation::Put(match (next("value")?, values) {
                (value, Values::Text) => value.into_bytes(),
                (value, Values::Number) => {
                    let number = number("value", &value);
                    let number =
                        number.map_err(|why| format!("{why}; for text, use --values text"))?;
                    number.to_le_bytes().to_vec()
                }
            }),
        };
        steps.push(Step {
            table,
            key,
            operation,
        });
    }
    Ok(steps)
}

/// Why a transaction was not committed.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("{0}; nothing was changed")]
    TooLarge(String),
}

/// Runs one transaction; what it read is printed once it has committed.
fn transact(database: &Database, steps: &[Step], values: Values) -> Result<(), Failure> {
    let run = |t: &mut Transaction| {
        let mut lines = Vec::new();
        for step in steps {
            let found = apply(database, t, step)?;
            lines.extend(found.map(|value| show(step, value, values)));
        }
        Ok::<_, Stopped>(lines)
    };
    let lines = database.run(run).map_err(|error| match error {
        Stopped::Database(DatabaseError::UnknownOutcome { transaction, .. }) => {
            let failure = Failure::new(&error);
            match database.outcome(transaction, OUTCOME) {
                Outcome::Committed => failure.help("it has committed in the meantime"),
                _ => failure.help("read the keys before you run it again"),
            }
        }
        Stopped::Database(DatabaseError::NoTable { .. }) => Failure::usage(error),
        error => Failure::new(error),
    })?;
    output::write(lines.concat().as_bytes())
}

/// How long to wait for the outcome of a transaction if it is unknown.
const OUTCOME: Duration = Duration::from_secs(10);

/// What to print for a step: the value of its key, which may be absent.
fn apply(
    database: &Database,
    t: &mut Transaction,
    step: &Step,
) -> Result<Option<Option<Vec<u8>>>, Stopped> {
    let table: Table<u64, Vec<u8>> = database.table(&step.table)?;
    match &step.operation {
        Operation::Get => Ok(Some(t.get(&table, &step.key)?)),
        Operation::Put(value) => {
            t.put(&table, &step.key, value)?;
            Ok(None)
        }
        Operation::Delete => {
            t.delete(&table, &step.key)?;
            Ok(None)
        }
        Operation::Add(number) => {
            let table: Table<u64, i64> = database.table(&step.table)?;
            let had = t.get(&table, &step.key)?.unwrap_or(0);
            let Some(sum) = had.checked_add(*number) else {
                return Err(Stopped::TooLarge(format!(
                    "{} {}: the sum of {had} and {number} exceeds a 64-bit value",
                    step.table, step.key
                )));
            };
            t.put(&table, &step.key, &sum)?;
            Ok(Some(Some(sum.to_le_bytes().to_vec())))
        }
    }
}

fn show(step: &Step, value: Option<Vec<u8>>, values: Values) -> String {
    let is_number = values == Values::Number || matches!(step.operation, Operation::Add(_));
    let shown = value.map(|bytes| match <[u8; 8]>::try_from(&bytes[..]) {
        Ok(number) if is_number => i64::from_le_bytes(number).to_string(),
        _ => String::from_utf8_lossy(&bytes).into_owned(),
    });
    let shown = shown.unwrap_or_else(|| "absent".to_owned());
    format!("{}\t{}\t{shown}\n", step.table, step.key)
}

/// Prints the members.
fn machines(database: &Database) -> Result<(), Failure> {
    let Some(of) = database.configuration() else {
        return output::print("the machines of this database are not replaced when they fail");
    };
    let mut table = output::table(&["machine", "address", "role"]);
    for (number, member) in of.members.iter().enumerate() {
        let role = match member.role {
            Role::Whole => "whole",
            Role::Learner => "copies",
            Role::Out => "out",
        };
        table.add_row([number.to_string(), member.address.clone(), role.to_owned()]);
    }
    output::print(format_args!(
        "{}, {} copies of each key",
        of.epoch, of.replicas
    ))?;
    output::print(table)
}
