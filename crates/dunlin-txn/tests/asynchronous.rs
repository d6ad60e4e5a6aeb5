//! The async face of the database: what it promises is what the blocking one does, no thread of an executor waits, and
//! what is dropped leaves nothing behind.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use dunlin_rpc::{RunningServer, Server};
use dunlin_txn::server::{StoreConfig, StoreServer, TableSpec};
use dunlin_txn::{Database, DatabaseError, Table, TRANSACTIONS_MAX};
use dunlin_verbs::thread::block_on;
use tokio::task::JoinSet;

/// Two machines of this process, and their addresses.
fn two() -> (Vec<RunningServer>, Vec<String>) {
    let serve = |machine| {
        let config = StoreConfig {
            machine,
            machines: 2,
            replicas: 2,
            tables: vec![
                TableSpec::new(0, "accounts", 10_000, 8),
                TableSpec::new(1, "names", 100, 16),
            ],
            one_sided_writes: true,
        };
        let server = Server::bind("dunlin://127.0.0.1:0").unwrap();
        StoreServer::serve(server, config).unwrap().into_server()
    };
    let servers: Vec<RunningServer> = (0..2).map(serve).collect();
    let addresses = servers.iter().map(|s| s.address().to_string()).collect();
    (servers, addresses)
}

/// In one process, and over the RPC with each way to validate, log and commit.
fn everywhere(check: impl Fn(&Database)) {
    check(&Database::in_process());
    let (_servers, addresses) = two();
    for protocol in ["auto", "fasst", "flocktx", "scaletx", "scaletx-o"] {
        let opened = Database::builder().protocol(protocol);
        check(&block_on(opened.open_async(&addresses)).unwrap());
    }
}

fn one_thread() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().unwrap()
}

async fn value(database: &Database, table: &Table<u64, i64>, key: u64) -> Option<i64> {
    let read = database.read_async(|t| async move { t.get(table, &key).await });
    let read: Result<_, DatabaseError> = read.await;
    read.unwrap()
}

async fn set(database: &Database, table: &Table<u64, i64>, key: u64, value: Option<i64>) {
    let changed = database.run_async(|t| async move {
        match &value {
            Some(value) => t.put(table, &key, value),
            None => t.delete(table, &key),
        }
    });
    let changed: Result<(), DatabaseError> = changed.await;
    changed.unwrap();
}

#[test]
fn a_transaction_is_what_it_is_for_threads() {
    everywhere(|database| block_on(behaves(database)));
}

async fn behaves(database: &Database) {
    let accounts: &Table<u64, i64> = &database.table("accounts").unwrap();
    let names: &Table<u64, String> = &database.table("names").unwrap();
    set(database, accounts, 1, None).await;

    // What is written is read by itself at once, and by others when it has committed.
    let t = database.begin_async();
    t.put(accounts, &1, &10).unwrap();
    t.put(names, &1, &"ada".to_owned()).unwrap();
    assert_eq!(t.get(accounts, &1).await.unwrap(), Some(10));
    assert_eq!(value(database, accounts, 1).await, None);
    t.commit().await.unwrap();
    assert_eq!(value(database, accounts, 1).await, Some(10));

    // Aborted, or ended by an error of the function's own, it has no effect and leaves no lock.
    let t = database.begin_async();
    t.put(accounts, &1, &99).unwrap();
    t.get_for_update(accounts, &1).await.unwrap();
    t.abort();
    let failed = database.run_async(|t| async move {
        t.put(accounts, &1, &98)?;
        t.get_for_update(accounts, &1).await?;
        Err::<(), Box<dyn std::error::Error>>("not today".into())
    });
    assert_eq!(failed.await.unwrap_err().to_string(), "not today");
    assert_eq!(value(database, accounts, 1).await, Some(10));

    // What changed after it was read aborts the reader, who is told the key.
    let t = database.begin_async();
    let keys = [1, 2];
    let seen = t.get_many(accounts, &keys).await.unwrap();
    assert_eq!(seen, [Some(10), None]);
    set(database, accounts, 1, Some(11)).await;
    t.put(accounts, &2, &1).unwrap();
    let error = t.commit().await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(value(database, accounts, 2).await, None);

    // A lock that stands in the way is waited for until the deadline, and no longer.
    let holder = database.begin_async();
    holder.get_for_update(accounts, &1).await.unwrap();
    let hurried = database.within(Duration::from_secs(2));
    let tries = AtomicU64::new(0);
    let tries = &tries;
    let failed = hurried.run_async(|t| async move {
        tries.fetch_add(1, Ordering::Relaxed);
        t.put(accounts, &1, &12)
    });
    match failed.await {
        Err(DatabaseError::Aborted { attempts, .. }) => {
            assert!(attempts > 1 && u64::from(attempts) == tries.load(Ordering::Relaxed));
        }
        other => panic!("{other:?}"),
    }
    let patient = database.run_async(|t| async move { t.put(accounts, &1, &13) });
    let released = async move { drop(holder) };
    let (patient, ()) = tokio::join!(patient, released);
    let patient: Result<(), DatabaseError> = patient;
    patient.unwrap();
    assert_eq!(value(database, accounts, 1).await, Some(13));

    // Steps that are asked for together see one transaction; when it is over it takes nothing more.
    let t = database.begin_async();
    let (one, two, locked) = tokio::join!(
        t.get(accounts, &1),
        t.get(accounts, &2),
        t.get_for_update(accounts, &1),
    );
    assert_eq!(
        (one.unwrap(), two.unwrap(), locked.unwrap()),
        (Some(13), None, Some(13))
    );
    t.put(accounts, &1, &14).unwrap();
    t.clone().commit().await.unwrap();
    assert!(matches!(
        t.get(accounts, &3).await,
        Err(DatabaseError::Over)
    ));
    assert!(matches!(t.commit().await, Err(DatabaseError::Over)));

    // A function may commit by itself.
    let committed = database.run_async(|t| async move {
        t.put(accounts, &1, &15)?;
        t.commit().await
    });
    let committed: Result<(), DatabaseError> = committed.await;
    committed.unwrap();
    assert_eq!(value(database, accounts, 1).await, Some(15));
}

#[test]
fn what_is_dropped_midway_leaves_no_lock() {
    everywhere(|database| {
        let accounts: &Table<u64, i64> = &database.table("accounts").unwrap();
        block_on(set(database, accounts, 5, Some(50)));
        // It is given up before its lock is there, or at some moment after; the second half at some moment of its
        // commit, too, if all came before its thread had looked, and then it may be done.
        for step in 0..6 {
            let (t, commits) = (database.begin_async(), step >= 3);
            let mut locks = Box::pin(async move {
                t.get_for_update(accounts, &5).await?;
                t.put(accounts, &5, &51)?;
                match commits {
                    true => t.commit().await,
                    false => std::future::pending().await,
                }
            });
            let begun = locks.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            // Where this thread was away from its core meanwhile, even the commit may be done.
            assert!(begun.is_pending() || commits);
            std::thread::sleep(Duration::from_millis(step % 3));
            drop(locks);
            let now = block_on(value(database, accounts, 5));
            assert!(now == Some(50) || commits && now == Some(51), "{now:?}");
        }
        let left = block_on(database.run_async(|t| async move {
            let found = t.get_for_update(accounts, &5).await?;
            t.put(accounts, &5, &52)?;
            Ok::<_, DatabaseError>(found)
        }));
        assert!(matches!(left.unwrap(), Some(50 | 51)));
    });
}

#[test]
fn tasks_of_one_thread_move_money_in_each_others_way() {
    const ACCOUNTS: u64 = 20;
    const TASKS: u64 = 200;
    everywhere(|database| {
        let accounts: Table<u64, i64> = database.table("accounts").unwrap();
        one_thread().block_on(async {
            for account in 0..ACCOUNTS {
                set(database, &accounts, account, Some(1000)).await;
            }
            let mut tasks = JoinSet::new();
            for task in 0..TASKS {
                let (database, accounts) = (database.clone(), accounts.clone());
                tasks.spawn(async move {
                    let accounts = &accounts;
                    let (from, to) = (task % ACCOUNTS, (task * 7 + 1) % ACCOUNTS);
                    let moved = database.run_async(|t| async move {
                        let keys = [from, to];
                        let found = t.get_many(accounts, &keys).await?;
                        if from != to {
                            t.put(accounts, &from, &(found[0].unwrap_or(0) - 1))?;
                            t.put(accounts, &to, &(found[1].unwrap_or(0) + 1))?;
                        }
                        Ok::<_, DatabaseError>(())
                    });
                    moved.await
                });
            }
            while let Some(ended) = tasks.join_next().await {
                ended.unwrap().unwrap();
            }
            let accounts = &accounts;
            let keys: Vec<u64> = (0..ACCOUNTS).collect();
            let keys = &keys;
            let all = database.read_async(|t| async move { t.get_many(accounts, keys).await });
            let all: Result<Vec<Option<i64>>, DatabaseError> = all.await;
            let sum: i64 = all.unwrap().into_iter().flatten().sum();
            assert_eq!(sum, 1000 * ACCOUNTS as i64);
        });
    });
}

#[test]
fn more_than_can_be_open_wait_their_turn() {
    let (_servers, addresses) = two();
    let database = Database::open(&addresses).unwrap();
    let accounts: Table<u64, i64> = database.table("accounts").unwrap();
    let most = u64::from(TRANSACTIONS_MAX);
    one_thread().block_on(async {
        let mut tasks = JoinSet::new();
        let together = Arc::new(tokio::sync::Semaphore::new(0));
        for task in 0..2 * most {
            let (database, accounts) = (database.clone(), accounts.clone());
            let together = Arc::clone(&together);
            tasks.spawn(async move {
                let t = database.begin_async();
                t.get_for_update(&accounts, &task).await?;
                t.put(&accounts, &task, &1)?;
                // All that can be open are, before any goes on.
                together.acquire().await.unwrap().forget();
                t.commit().await
            });
        }
        // Those that are open keep their places: another finds none within its deadline.
        let hurried = database.within(Duration::from_millis(50));
        let accounts = &accounts;
        loop {
            let found: Result<_, DatabaseError> = hurried
                .read_async(|t| async move { t.get(accounts, &9999).await })
                .await;
            match found {
                Err(DatabaseError::Busy { open }) => break assert_eq!(open as u64, most),
                Err(other) => panic!("{other}"),
                Ok(_) => tokio::task::yield_now().await,
            }
        }
        together.add_permits(2 * most as usize);
        while let Some(ended) = tasks.join_next().await {
            let ended: Result<(), DatabaseError> = ended.unwrap();
            ended.unwrap();
        }
    });
}

#[test]
fn a_machine_that_is_gone_is_named() {
    let (mut servers, addresses) = two();
    let database = Database::open(&addresses).unwrap();
    let accounts: &Table<u64, i64> = &database.table("accounts").unwrap();
    block_on(set(&database, accounts, 1, Some(1)));
    servers.pop();
    let keys: Vec<u64> = (0..20).collect();
    let keys = &keys;
    let read = database.read_async(|t| async move { t.get_many(accounts, keys).await });
    let read: Result<Vec<Option<i64>>, DatabaseError> = block_on(read);
    match read {
        Err(DatabaseError::Unavailable { machine, .. }) => assert_eq!(machine.0, 1),
        other => panic!("{other:?}"),
    }
}
