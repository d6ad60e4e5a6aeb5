//! A file system of this process: a metadata server and data servers, in a folder that goes with it.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dunlin::{RunningServer, Server};
use dunlin_fs::data::{self, DataOptions};
use dunlin_fs::meta::{self, Durability, MetaOptions, MetaServer};
use dunlin_fs::{FileSystem, FsOptions};

/// Waits for a condition, with a generous bound.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "never came: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn serve_data(file: &Path, address: &str, bytes: u64) -> RunningServer {
    let options = DataOptions {
        file: file.to_owned(),
        bytes,
        durability: Durability::Process,
    };
    data::serve(Server::bind(address).unwrap(), &options).unwrap()
}

pub fn serve_meta(store: PathBuf, address: &str, data: Vec<String>, lease: Duration) -> MetaServer {
    let options = MetaOptions {
        data,
        lease,
        durability: Durability::Process,
        ..MetaOptions::new(store)
    };
    meta::serve(Server::bind(address).unwrap(), &options).unwrap()
}

pub struct Cluster {
    pub meta: Option<MetaServer>,
    pub data: Vec<RunningServer>,
    pub address: String,
    pub folder: tempfile::TempDir,
    pub lease: Duration,
}

impl Cluster {
    pub fn new(servers: usize, bytes: u64, lease: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data: Vec<_> = (0..servers)
            .map(|n| {
                let file = folder.path().join(format!("data{n}"));
                serve_data(&file, "dunlin://127.0.0.1:0", bytes)
            })
            .collect();
        let addresses = data.iter().map(|server| server.address().to_string());
        let store = folder.path().join("meta");
        let meta = serve_meta(store, "dunlin://127.0.0.1:0", addresses.collect(), lease);
        Self {
            address: meta.running().address().to_string(),
            meta: Some(meta),
            data,
            folder,
            lease,
        }
    }

    pub fn store(&self) -> PathBuf {
        self.folder.path().join("meta")
    }

    pub fn client(&self) -> FileSystem {
        let options = FsOptions {
            patience: Duration::from_secs(20),
            ..FsOptions::default()
        };
        let system = FileSystem::connect_with(&self.address, &options).unwrap();
        eventually("the data servers are known", || {
            system.space().unwrap().bytes > 0
        });
        system
    }

    /// Ends the metadata server and starts it again on its store and port.
    pub fn restart_meta(&mut self) {
        self.meta.take().unwrap().shutdown();
        let data = self.data.iter().map(|server| server.address().to_string());
        self.meta = Some(serve_meta(
            self.store(),
            &self.address,
            data.collect(),
            self.lease,
        ));
    }

    /// Ends the servers and checks the store.
    pub fn check(mut self) -> dunlin_fs::namespace::Findings {
        self.meta.take().unwrap().shutdown();
        let findings = meta::check(&self.store()).unwrap();
        assert_eq!(findings.faults, []);
        findings
    }
}
