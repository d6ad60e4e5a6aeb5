//! What the tests of services share: a service of protobuf messages, and how they wait.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::time::{Duration, Instant};

use dunlin_service::codec::Prost;

/// Long enough for any answer on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What is said, both ways.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Note {
    #[prost(string, tag = "1")]
    pub words: String,
    #[prost(uint64, tag = "2")]
    pub number: u64,
    #[prost(bytes = "vec", tag = "3")]
    pub payload: Vec<u8>,
}

impl Note {
    pub fn new(words: &str) -> Self {
        Self {
            words: words.into(),
            ..Self::default()
        }
    }
}

dunlin_service::service! {
    /// All that unary calls can do.
    pub service Probe = "test.Probe" with Prost {
        /// The same note.
        rpc echo as Echo(Note) -> Note;
        /// Fails as the note says: its number is the code.
        rpc fail as Fail(Note) -> Note;
        /// Waits for so many milliseconds as the number says.
        rpc sleep as Sleep(Note) -> Note;
        /// What the server sees of the request.
        rpc look as Look(Note) -> Note;
    }
}

/// Waits until `done` says so.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// As [`until`], in a task.
pub async fn until_async(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

dunlin_service::service! {
    /// Streams of all kinds.
    pub service Flow = "test.Flow" with Prost {
        /// As many notes as the number says, with numbers from zero on, of as many bytes as the payload has.
        rpc count as Count(Note) -> stream Note;
        /// The sum of the numbers, and how many there were in words.
        rpc sum as Sum(stream Note) -> Note;
        /// Each note comes back.
        rpc chat as Chat(stream Note) -> stream Note;
        /// Says one note and then nothing more, and reads nothing.
        rpc hang as Hang(stream Note) -> stream Note;
    }
}
