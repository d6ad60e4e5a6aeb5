//! Metadata of a file system: the unchanged namespace of `dunlin-fs`, served from memory.
//!
//! Its handlers do what those of a metadata server do, without a journal: the records of a change are dropped. Each
//! client has a directory and repeats one operation, as mdtest does in its phases.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use dunlin::{Grouping, HandlerError, HandlerId, Server};
use dunlin_fs::namespace::{Done, Namespace, Now};
use dunlin_fs::types::{Ino, Outcome, ROOT, S_IFDIR, S_IFREG};
use dunlin_fs::wire::{decode, encode, meta, Answer, Ask, Change, Envelope};
use dunlin_sim::{Cluster, SimDevice};
use dunlin_verbs::{thread, Device, Work};

use super::application::{Application, ApplicationBench, Caller};
use crate::dice::Dice;

/// Bytes of names that a client requests at once, as the client of `dunlin-fs` does.
const READ_DIR_BYTES: u32 = 64 << 10;
/// Start of a run, in nanoseconds since 1970: times are as long in messages as today's.
const BEGAN_NS: i64 = 1_700_000_000_000_000_000;

/// Operation of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creates files.
    Mknod,
    /// Removes files.
    Rmnod,
    /// Requests the attributes of a name.
    Stat,
    /// Lists a directory.
    ReadDir,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 4] = [Self::Mknod, Self::Rmnod, Self::Stat, Self::ReadDir];

    /// Its name, as users of mdtest know it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mknod => "Mknod",
            Self::Rmnod => "Rmnod",
            Self::Stat => "Stat",
            Self::ReadDir => "ReadDir",
        }
    }
}

/// Settings of a file system and its load.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// The clients.
    pub application: Application,
    /// ScaleRPC's groups and turns.
    pub grouping: Grouping,
    /// The operation of all clients.
    pub operation: Operation,
    /// Initial number of files in each client's directory.
    pub files: usize,
    /// Time of the operation on the server's core, in nanoseconds.
    pub cost_ns: u64,
}

impl Metadata {
    /// Puts the server and its clients on the hosts of a cluster.
    ///
    /// # Panics
    /// When a device or the RPC refuses.
    pub fn serve(&self, cluster: Cluster) -> ApplicationBench {
        let plan = &self.application;
        let tree = Arc::new(Tree::new(plan.threads, self.files));
        let (asked, changed) = (Arc::clone(&tree), Arc::clone(&tree));
        let cost_ns = self.cost_ns;
        let server = Server::unbound()
            .channel(plan.channel.clone())
            .grouping(self.grouping)
            .handle(meta::ASK, move |request, reply| {
                let answer = asked.ask(request.payload()).ok_or_else(malformed)?;
                // The lock is taken for reading, and released: its line comes from another core each time.
                SimDevice::charge(Work::SharedLine);
                SimDevice::charge(Work::SharedLine);
                SimDevice::charge(Work::Compute(cost_ns));
                reply.write(&answer)
            })
            .handle(meta::CHANGE, move |request, reply| {
                let answer = changed.change(request.payload()).ok_or_else(malformed)?;
                changed.take_turn(cost_ns);
                reply.write(&answer)
            });
        let (operation, files) = (self.operation, self.files);
        ApplicationBench::new(cluster, plan, server, |number| {
            Mdtest::new(&tree, number, operation, files)
        })
    }
}

#[cold]
fn malformed() -> HandlerError {
    HandlerError::new(1, "this is no request of this version of dunlin-fs")
}

/// A namespace with a directory for each client.
#[derive(Debug)]
pub struct Tree {
    namespace: RwLock<Namespace>,
    directories: Vec<Ino>,
    /// Time until which the namespace is locked for a change, in virtual nanoseconds. Others wait meanwhile, in order
    /// of arrival.
    taken_until_ns: AtomicU64,
}

impl Tree {
    /// Creates a namespace with `files` files in each directory.
    ///
    /// # Panics
    /// When the namespace refuses.
    pub fn new(clients: usize, files: usize) -> Self {
        let mut namespace = Namespace::new(now());
        namespace.set_lease_ms(u64::from(u32::MAX));
        let mut directories = Vec::new();
        for client in 0..clients {
            let begun = namespace.begin_session(session(client), u64::MAX);
            begun.expect("room for a session");
            let mut made = |parent, name: &str, mode, sequence| {
                let change = make(parent, name, mode);
                let envelope = Envelope {
                    session: session(client),
                    slot: 1,
                    sequence,
                    change,
                };
                match namespace.change(&envelope, now()) {
                    Done::Answered { answer, .. } => inode(&answer).expect("a new file"),
                    Done::Waits(_) => unreachable!("nobody has a lease"),
                }
            };
            let directory = made(ROOT, &format!("mdtest.{client}"), S_IFDIR | 0o755, 1);
            for number in 0..files {
                let name = name(client, number as u64);
                made(directory, &name, S_IFREG | 0o644, number as u32 + 2);
            }
            directories.push(directory);
        }
        namespace.take_records();
        Self {
            namespace: RwLock::new(namespace),
            directories,
            taken_until_ns: AtomicU64::new(0),
        }
    }

    /// The answer to an encoded [`Ask`].
    pub fn ask(&self, payload: &[u8]) -> Option<Vec<u8>> {
        let ask: Ask<'_> = decode(payload)?;
        let namespace = self.namespace.read();
        let namespace = namespace.unwrap_or_else(PoisonError::into_inner);
        Some(encode(&namespace.ask(&ask).0))
    }

    /// The answer to an encoded [`Envelope`].
    pub fn change(&self, payload: &[u8]) -> Option<Vec<u8>> {
        let envelope: Envelope<'_> = decode(payload)?;
        let namespace = self.namespace.write();
        let mut namespace = namespace.unwrap_or_else(PoisonError::into_inner);
        let done = namespace.change(&envelope, now());
        namespace.take_records();
        match done {
            Done::Answered { answer, .. } => Some(answer),
            // No request of this load waits.
            Done::Waits(_) => None,
        }
    }

    /// Charges a change and the wait for those before it.
    fn take_turn(&self, cost_ns: u64) {
        let now_ns = thread::simulated_now().map_or(0, |now| now.as_nanos() as u64);
        let begin_ns = self.taken_until_ns.load(Ordering::Relaxed).max(now_ns);
        let end_ns = begin_ns + cost_ns;
        self.taken_until_ns.store(end_ns, Ordering::Relaxed);
        SimDevice::charge(Work::SharedLine);
        SimDevice::charge(Work::Compute(end_ns - now_ns));
    }
}

fn now() -> Now {
    let since = thread::simulated_now().unwrap_or_default();
    Now {
        wall: BEGAN_NS + since.as_nanos() as i64,
        steady_ms: since.as_millis() as u64,
    }
}

/// Session number of a client; real ones are random, and as long.
fn session(client: usize) -> u64 {
    u64::MAX - client as u64
}

/// File names of a process, as mdtest names them.
fn name(client: usize, number: u64) -> String {
    format!("file.mdtest.{client}.{number}")
}

fn make(parent: Ino, name: &str, mode: u32) -> Change<'_> {
    Change::Make {
        parent,
        name: name.as_bytes(),
        mode,
        uid: 1000,
        gid: 1000,
        rdev: 0,
        target: &[],
        lease: false,
    }
}

/// The file that an answer describes.
fn inode(answer: &[u8]) -> Option<Ino> {
    match decode::<Outcome<Answer>>(answer)? {
        Ok(Answer::Attr(attr)) => Some(attr.ino),
        _ => None,
    }
}

/// A process of mdtest, in one of its phases.
#[derive(Debug)]
pub struct Mdtest {
    operation: Operation,
    files: usize,
    client: usize,
    directory: Ino,
    dice: Dice,
    sequence: u32,
}

impl Mdtest {
    /// A client of a tree.
    pub fn new(tree: &Tree, client: usize, operation: Operation, files: usize) -> Self {
        Self {
            operation,
            files,
            client,
            directory: tree.directories[client],
            dice: Dice::new(client as u64 + 1),
            sequence: 0,
        }
    }

    /// The next request, and its handler.
    pub fn request(&mut self) -> (HandlerId, Vec<u8>) {
        let (client, parent) = (self.client, self.directory);
        let ask = match self.operation {
            Operation::Stat => {
                let name = name(client, self.dice.between(0, self.files as u64 - 1));
                let name = name.as_bytes();
                return (meta::ASK, encode(&Ask::Lookup { parent, name }));
            }
            Operation::ReadDir => Some(Ask::ReadDir {
                ino: parent,
                after: &[],
                bytes: READ_DIR_BYTES,
            }),
            Operation::Mknod | Operation::Rmnod => None,
        };
        if let Some(ask) = ask {
            return (meta::ASK, encode(&ask));
        }
        let number = u64::from(self.sequence);
        self.sequence += 1;
        let name = match self.operation {
            // Behind the existing ones.
            Operation::Mknod => name(client, self.files as u64 + number),
            _ => name(client, number),
        };
        let change = match self.operation {
            Operation::Mknod => make(parent, &name, S_IFREG | 0o644),
            _ => Change::Unlink {
                parent,
                name: name.as_bytes(),
            },
        };
        let envelope = Envelope {
            session: session(client),
            slot: 0,
            sequence: self.sequence,
            change,
        };
        (meta::CHANGE, encode(&envelope))
    }
}

impl Caller for Mdtest {
    fn next(&mut self, request: &mut Vec<u8>) -> (HandlerId, usize) {
        let (handler, bytes) = self.request();
        *request = bytes;
        (handler, 0)
    }

    fn is_answer(&self, _kind: usize, answer: &[u8]) -> bool {
        match (self.operation, decode::<Outcome<Answer>>(answer)) {
            (Operation::ReadDir, Some(Ok(Answer::Entries { entries, end }))) => {
                end && entries.len() == self.files
            }
            (Operation::ReadDir, _) => false,
            (_, Some(Ok(Answer::Attr(attr)))) => attr.mode & S_IFREG != 0,
            _ => false,
        }
    }
}
