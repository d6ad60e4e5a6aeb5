//! The directory of a log: whose it is, who has it now, and its files.
//!
//! | file | what is in it |
//! |---|---|
//! | `machine` | whose log it is, as text |
//! | `lock` | nothing; it is locked while a machine runs |
//! | `snapshot-N` | all that groups before number N have done |
//! | `log-N` | groups from number N on |
//!
//! A file whose name ends in `.new` was not finished, and is removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{flock, FlockOperation};

use super::entry::Entry;
use super::error::LogError;
use super::frame::{self, Rest};

const FORMAT: &str = "dunlin log 1";
const MACHINE: &str = "machine";
const LOCK: &str = "lock";
const SNAPSHOT: &str = "snapshot-";
const LOG: &str = "log-";
const UNFINISHED: &str = ".new";

/// Whose log it is, in a line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity(pub(crate) String);

/// A directory that this process has to itself.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: File,
}

/// What was in it.
#[derive(Debug)]
pub(crate) struct Contents {
    /// Nothing where no machine has begun here. Those of the snapshot are first.
    pub(crate) entries: Vec<Entry>,
    /// The number of the next group.
    pub(crate) next: u64,
    /// Bytes of a torn tail, which was cut.
    pub(crate) cut: u64,
}

impl Directory {
    /// The directory, which is made where it is missing, and what is in it.
    pub(crate) fn open(path: &Path, of: &Identity) -> Result<(Directory, Contents), LogError> {
        if !path.is_dir() {
            fs::create_dir_all(path).map_err(io_error(path, "make the directory"))?;
            let above = path.parent().filter(|above| !above.as_os_str().is_empty());
            sync(above.unwrap_or(Path::new(".")))?;
        }
        let lock = path.join(LOCK);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock)
            .map_err(io_error(&lock, "open"))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let directory = path.to_owned();
                return Err(LogError::InUse { directory });
            }
            Err(error) => return Err(io_error(path, "lock")(error.into())),
        }
        let directory = Directory {
            path: path.to_owned(),
            _lock: lock,
        };
        directory.identify(of)?;
        let contents = directory.read()?;
        Ok((directory, contents))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self, kind: &str, number: u64) -> PathBuf {
        self.path.join(format!("{kind}{number:020}"))
    }

    fn identify(&self, of: &Identity) -> Result<(), LogError> {
        let path = self.path.join(MACHINE);
        let wanted = &of.0;
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let is_known = |name: &String| name == LOCK || name.ends_with(UNFINISHED);
                if !self.names()?.iter().all(is_known) {
                    let directory = self.path.clone();
                    return Err(LogError::Foreign { directory });
                }
                let mut file = Unfinished::create(path)?;
                file.write(format!("{FORMAT}\n{wanted}\n").as_bytes())?;
                file.finish()?;
                return sync(&self.path);
            }
            Err(error) => return Err(io_error(&path, "read")(error)),
        };
        let directory = self.path.clone();
        match text.trim_end().split_once('\n') {
            Some((FORMAT, found)) if found == wanted => Ok(()),
            Some((FORMAT, found)) => Err(LogError::OtherMachine {
                directory,
                found: found.to_owned(),
                wanted: wanted.clone(),
            }),
            _ => Err(LogError::Foreign { directory }),
        }
    }

    fn names(&self) -> Result<Vec<String>, LogError> {
        let listed = || -> io::Result<Vec<String>> {
            let name = |entry: io::Result<fs::DirEntry>| {
                Ok(entry?.file_name().to_string_lossy().into_owned())
            };
            fs::read_dir(&self.path)?.map(name).collect()
        };
        listed().map_err(io_error(&self.path, "list"))
    }

    /// The numbers of files of a kind, in their order.
    fn numbers(&self, kind: &str) -> Result<Vec<u64>, LogError> {
        let names = self.names()?;
        let number = |name: &String| name.strip_prefix(kind)?.parse().ok();
        let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Removes what snapshots before this one needed, and what was not finished.
    fn tidy(&self, at: u64) -> Result<(), LogError> {
        let mut old: Vec<PathBuf> = Vec::new();
        for kind in [SNAPSHOT, LOG] {
            let before = self
                .numbers(kind)?
                .into_iter()
                .filter(|number| *number < at);
            old.extend(before.map(|number| self.file(kind, number)));
        }
        let names = self.names()?.into_iter();
        let unfinished = names.filter(|name| name.ends_with(UNFINISHED));
        old.extend(unfinished.map(|name| self.path.join(name)));
        old.iter()
            .try_for_each(|path| fs::remove_file(path).map_err(io_error(path, "remove")))
    }

    fn damaged(&self, file: &Path, offset: usize, why: impl Into<String>) -> LogError {
        LogError::Damaged {
            directory: self.path.clone(),
            file: file.to_owned(),
            offset: offset as u64,
            why: why.into(),
        }
    }

    fn read(&self) -> Result<Contents, LogError> {
        let logs = self.numbers(LOG)?;
        let mut contents = Contents {
            entries: Vec::new(),
            next: 1,
            cut: 0,
        };
        let Some(at) = self.numbers(SNAPSHOT)?.pop() else {
            return match logs.first() {
                Some(first) => {
                    let why = "there is no snapshot that it follows";
                    Err(self.damaged(&self.file(LOG, *first), 0, why))
                }
                None => Ok(contents),
            };
        };
        let path = self.file(SNAPSHOT, at);
        let (groups, end, rest) = self.groups(&path, 1)?;
        contents.entries = groups.into_iter().flatten().collect();
        if rest != Rest::Nothing || contents.entries.pop() != Some(Entry::End) {
            return Err(self.damaged(&path, end, "a snapshot that is not whole"));
        }
        contents.next = at;
        let logs: Vec<u64> = logs.into_iter().filter(|number| *number >= at).collect();
        for (nth, number) in logs.iter().enumerate() {
            let path = self.file(LOG, *number);
            if *number != contents.next {
                let why = format!("group {} is missing before it", contents.next);
                return Err(self.damaged(&path, 0, why));
            }
            let (groups, end, rest) = self.groups(&path, *number)?;
            match rest {
                Rest::Nothing => {}
                Rest::Torn if nth + 1 == logs.len() => {}
                Rest::Torn | Rest::Damaged => {
                    let why = "no whole group, and others follow it";
                    return Err(self.damaged(&path, end, why));
                }
            }
            contents.next += groups.len() as u64;
            contents.entries.extend(groups.into_iter().flatten());
            if end == 0 {
                let length = fs::metadata(&path).map_err(io_error(&path, "read"))?.len();
                fs::remove_file(&path).map_err(io_error(&path, "remove"))?;
                contents.cut = length;
            } else if nth + 1 == logs.len() {
                contents.cut = self.rewrite(&path, end)?;
            }
        }
        self.tidy(at)?;
        Ok(contents)
    }

    /// The entries of each whole group of a file, where those end, and what is behind them.
    fn groups(&self, path: &Path, first: u64) -> Result<(Vec<Vec<Entry>>, usize, Rest), LogError> {
        let bytes = fs::read(path).map_err(io_error(path, "read"))?;
        let found = frame::find(&bytes, first);
        let entries = found.groups.iter().map(|group| {
            let decoded = Entry::decode_all(&bytes[group.clone()]);
            decoded.map_err(|error| self.damaged(path, group.start, error.to_string()))
        });
        Ok((entries.collect::<Result<_, _>>()?, found.end, found.rest))
    }

    /// Writes what counts of the last file anew, and returns how much was behind it. Its last group may never have
    /// reached the disk, though it can be read: the life that wrote it ended before the sync, or the sync failed, after
    /// which no other sync of the same pages tells anything.
    fn rewrite(&self, path: &Path, end: usize) -> Result<u64, LogError> {
        let bytes = fs::read(path).map_err(io_error(path, "read"))?;
        let (counts, torn) = bytes.split_at(end);
        let mut file = Unfinished::create(path.to_owned())?;
        file.write(counts)?;
        file.finish()?;
        sync(&self.path)?;
        Ok(torn.len() as u64)
    }

    /// A file for groups from this number on.
    pub(super) fn segment(&self, first: u64) -> Result<(PathBuf, File), LogError> {
        let path = self.file(LOG, first);
        let made = OpenOptions::new().create_new(true).append(true).open(&path);
        let file = made.map_err(io_error(&path, "make the file"))?;
        sync(&self.path)?;
        Ok((path, file))
    }

    /// Begins a snapshot of what groups before this number have done.
    pub(crate) fn snapshot(&self, at: u64) -> Result<Snapshot<'_>, LogError> {
        Ok(Snapshot {
            directory: self,
            at,
            file: Unfinished::create(self.file(SNAPSHOT, at))?,
            frame: Vec::new(),
            frames: 0,
            bytes: 0,
        })
    }
}

/// A snapshot that is being written.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    directory: &'a Directory,
    at: u64,
    file: Unfinished,
    frame: Vec<u8>,
    frames: u64,
    bytes: u64,
}

impl Snapshot<'_> {
    /// Takes entries, those of one call in one frame.
    pub(crate) fn put(&mut self, entries: &[Entry]) -> Result<(), LogError> {
        frame::begin(&mut self.frame);
        entries
            .iter()
            .for_each(|entry| entry.encode(&mut self.frame));
        self.frames += 1;
        frame::seal(&mut self.frame, self.frames);
        self.bytes += self.frame.len() as u64;
        self.file.write(&self.frame)
    }

    /// From now on it stands for all that was before. Returns how long it is.
    pub(crate) fn finish(mut self) -> Result<u64, LogError> {
        self.put(&[Entry::End])?;
        self.file.finish()?;
        sync(&self.directory.path)?;
        self.directory.tidy(self.at)?;
        Ok(self.bytes)
    }
}

/// A file that has its name when it is finished.
#[derive(Debug)]
struct Unfinished {
    path: PathBuf,
    unfinished: PathBuf,
    file: File,
}

impl Unfinished {
    fn create(path: PathBuf) -> Result<Self, LogError> {
        let mut unfinished = path.clone().into_os_string();
        unfinished.push(UNFINISHED);
        let unfinished = PathBuf::from(unfinished);
        let file = File::create(&unfinished).map_err(io_error(&unfinished, "make the file"))?;
        Ok(Self {
            path,
            unfinished,
            file,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        let written = self.file.write_all(bytes);
        written.map_err(io_error(&self.unfinished, "write"))
    }

    fn finish(self) -> Result<(), LogError> {
        let synced = self.file.sync_all();
        synced.map_err(io_error(&self.unfinished, "sync"))?;
        let renamed = fs::rename(&self.unfinished, &self.path);
        renamed.map_err(io_error(&self.path, "rename to it"))
    }
}

/// Makes the names that a directory has now last.
fn sync(directory: &Path) -> Result<(), LogError> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(io_error(directory, "sync the directory"))
}

pub(super) fn io_error<'a>(
    path: &'a Path,
    what: &'static str,
) -> impl Fn(io::Error) -> LogError + 'a {
    move |source| LogError::Io {
        path: path.to_owned(),
        what,
        source,
    }
}
