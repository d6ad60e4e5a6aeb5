//! The client for tasks.

mod common;

use std::time::Duration;

use common::Cluster;
use dunlin_fs::types::Errno;
use dunlin_fs::{AsyncFileSystem, FsError};
use futures_executor::block_on;
use futures_util::future::{join_all, poll_fn};
use futures_util::FutureExt;

const LEASE: Duration = Duration::from_secs(10);
const FILES: usize = 16;

fn content(number: usize) -> Vec<u8> {
    (0..100_000 + number)
        .map(|at| (at * (number + 1) % 251) as u8)
        .collect()
}

/// One thread has many files under way; what they wrote is there for a client of threads.
#[test]
fn many_files_at_once() {
    let cluster = Cluster::new(2, 64 << 20, LEASE);
    let threads = cluster.client();
    let system = AsyncFileSystem::from(cluster.client());
    block_on(async {
        system.create_directory("/many").await.unwrap();
        let one = |number: usize| {
            let system = &system;
            async move {
                let file = system.create_new(&format!("/many/{number}")).await?;
                file.write_at(0, content(number)).await?;
                file.sync().await?;
                let back = file.read_at(1, 200_000).await?;
                assert_eq!(back, content(number)[1..]);
                assert_eq!(
                    file.attributes().await?.size as usize,
                    content(number).len()
                );
                file.close().await;
                Ok::<_, FsError>(())
            }
        };
        for outcome in join_all((0..FILES).map(one)).await {
            outcome.unwrap();
        }
        assert_eq!(system.list("/many").await.unwrap().len(), FILES);
        system.remove("/many/0").await.unwrap();
        let gone = system.open("/many/0").await.map(drop);
        assert_eq!(gone.unwrap_err().errno(), Errno::NOENT);
        let space = system.run(|system| system.space()).await.unwrap();
        assert!(space.bytes > 0);
        system.sync_all().await.unwrap();
    });
    for number in 1..FILES {
        let file = threads.open(&format!("/many/{number}")).unwrap();
        assert_eq!(file.read_at(0, 200_000).unwrap(), content(number));
    }
    drop(threads);
    block_on(system.close());
    let findings = cluster.check();
    assert_eq!((findings.files, findings.sessions), (FILES as u64 - 1, 0));
}

/// A future that was polled once and dropped has begun: its write is whole or not there, and the file goes on.
#[test]
fn a_dropped_future_tears_nothing() {
    let cluster = Cluster::new(1, 16 << 20, LEASE);
    let system = AsyncFileSystem::from(cluster.client());
    block_on(async {
        let file = system.create_new("/one").await.unwrap();
        file.write_at(0, vec![1; 50_000]).await.unwrap();
        let mut write = Box::pin(file.write_at(0, vec![2; 50_000]));
        poll_fn(|context| {
            let _ = write.poll_unpin(context);
            std::task::Poll::Ready(())
        })
        .await;
        drop(write);
        file.sync().await.unwrap();
        // Behind the sync nothing is under way: the lock of the file is taken in turn.
        file.write_at(50_000, vec![3; 10]).await.unwrap();
        let bytes = file.read_at(0, 60_000).await.unwrap();
        assert_eq!(bytes.len(), 50_010);
        assert!(bytes[..50_000].iter().all(|byte| *byte == bytes[0]), "torn");
        assert!(bytes[0] == 1 || bytes[0] == 2);
    });
}
