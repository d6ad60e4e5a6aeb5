//! What each face of the database costs: three machines of this process, transfers between accounts, by a thread that
//! runs one at a time, by 1 to 1000 tasks of one executor's thread, and by a driver of 20.
//!
//! `cargo run --release -p dunlin-txn --example faces -- SECONDS`

use std::time::{Duration, Instant};

use dunlin_rpc::{RunningServer, Server};
use dunlin_txn::server::{StoreConfig, StoreServer, TableSpec};
use dunlin_txn::{Access, Database, DatabaseError, Key, Once, Report, Step, Table, Value};
use tokio::task::JoinSet;

const MACHINES: u16 = 3;
const ACCOUNTS: u64 = 100_000;
const AT_ONCE: u16 = 20;
const TASKS: [usize; 5] = [1, 20, 100, 500, 1000];

type Failure = Box<dyn std::error::Error>;

fn serve(machine: u16) -> Result<RunningServer, Failure> {
    let config = StoreConfig {
        machine,
        machines: MACHINES,
        replicas: 3,
        tables: vec![TableSpec::new(0, "accounts", 2 * ACCOUNTS, 8)],
        one_sided_writes: false,
    };
    let server = Server::bind("dunlin://127.0.0.1:0")?;
    Ok(StoreServer::serve(server, config)?.into_server())
}

fn pair() -> (u64, u64) {
    let from = fastrand::u64(..ACCOUNTS);
    (from, (from + fastrand::u64(1..ACCOUNTS)) % ACCOUNTS)
}

fn blocking(
    database: &Database,
    accounts: &Table<u64, i64>,
    until: Instant,
) -> Result<u64, DatabaseError> {
    let mut committed = 0;
    while Instant::now() < until {
        let (from, to) = pair();
        database.run(|t| {
            let found = t.get_many(accounts, [&from, &to])?;
            t.put(accounts, &from, &(found[0].unwrap_or(0) - 1))?;
            t.put(accounts, &to, &(found[1].unwrap_or(0) + 1))
        })?;
        committed += 1;
    }
    Ok(committed)
}

async fn waiting(
    database: Database,
    accounts: Table<u64, i64>,
    until: Instant,
) -> Result<u64, DatabaseError> {
    let mut committed = 0;
    let accounts = &accounts;
    while Instant::now() < until {
        let (from, to) = pair();
        let moved = database.run_async(|t| async move {
            let found = t.get_many(accounts, [&from, &to]).await?;
            t.put(accounts, &from, &(found[0].unwrap_or(0) - 1))?;
            t.put(accounts, &to, &(found[1].unwrap_or(0) + 1))
        });
        moved.await?;
        committed += 1;
    }
    Ok(committed)
}

/// One round: both keys are locked as they are read.
fn driven(database: &Database, until: Instant) -> Result<u64, DatabaseError> {
    let mut driver = database.driver(AT_ONCE)?;
    let mut committed = 0;
    loop {
        let over = Instant::now() >= until;
        if over && driver.running() == 0 {
            return Ok(committed);
        }
        while !over && driver.free() > 0 {
            let (from, to) = pair();
            let keys = [Key::number(0, from), Key::number(0, to)];
            let access = Access {
                reads: Vec::new(),
                writes: keys.iter().map(|key| (key.clone(), 8)).collect(),
            };
            let logic = Once::new(access, move |view| {
                let amount = |key| {
                    let bytes = view.value(key).and_then(|v| v[..].try_into().ok());
                    bytes.map_or(0, i64::from_le_bytes)
                };
                let put = |amount: i64| Some(Value::from(amount.to_le_bytes().to_vec()));
                let (left, right) = (amount(&keys[0]) - 1, amount(&keys[1]) + 1);
                let [from, to] = keys.clone();
                Step::Commit(vec![(from, put(left)), (to, put(right))])
            });
            driver.begin(0, Box::new(logic));
        }
        let busy = driver.poll(|_, _, report| {
            committed += u64::from(matches!(report, Report::Ended(Ok(_))));
        });
        if !busy {
            driver.rest();
        }
    }
}

fn main() -> Result<(), Failure> {
    let seconds: f64 = std::env::args()
        .nth(1)
        .map_or(Ok(2.0), |text| text.parse())?;
    let servers: Vec<RunningServer> = (0..MACHINES).map(serve).collect::<Result<_, _>>()?;
    let addresses: Vec<String> = servers.iter().map(|s| s.address().to_string()).collect();
    let database = Database::open(&addresses)?;
    let accounts: Table<u64, i64> = database.table("accounts")?;
    let length = Duration::from_secs_f64(seconds);
    let say = |face: &str, committed: u64| {
        println!("{face:<24} {:>10.1} k/s", committed as f64 / seconds / 1e3);
    };
    say(
        "a thread",
        blocking(&database, &accounts, Instant::now() + length)?,
    );
    for tasks in TASKS {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let committed: Result<u64, DatabaseError> = runtime.block_on(async {
            let until = Instant::now() + length;
            let mut set = JoinSet::new();
            for _ in 0..tasks {
                set.spawn(waiting(database.clone(), accounts.clone(), until));
            }
            let mut committed = 0;
            while let Some(Ok(ended)) = set.join_next().await {
                committed += ended?;
            }
            Ok(committed)
        });
        say(&format!("{tasks} tasks"), committed?);
    }
    say(
        "a driver of 20",
        driven(&database, Instant::now() + length)?,
    );
    Ok(())
}
