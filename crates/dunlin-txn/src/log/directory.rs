//! The directory of a log: its owner, its lock, and its files.
//!
//! | file | contents |
//! |---|---|
//! | `machine` | the machine that owns the log, as text |
//! | `lock` | empty; locked while a machine runs |
//! | `snapshot-N` | the state after all groups before number N |
//! | `log-N` | groups from number N on |
//!
//! A file whose name ends in `.new` is incomplete, and is removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{flock, FlockOperation};

use super::entry::Entry;
use super::error::LogError;
use super::frame::{self, Frames, Rest};

const FORMAT: &str = "dunlin log 1";
const MACHINE: &str = "machine";
const LOCK: &str = "lock";
const SNAPSHOT: &str = "snapshot-";
const LOG: &str = "log-";
const UNFINISHED: &str = ".new";
/// Number of bytes per read.
const READ_BYTES: usize = 256 * 1024;

/// The owner of a log, as a line of readable text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity(pub(crate) String);

/// A directory that this process has locked.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: File,
}

/// The end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// The number of the next group.
    pub(crate) next: u64,
    /// Bytes of a torn tail that were cut off.
    pub(crate) cut: u64,
}

/// What the first groups of all files contain.
#[derive(Debug)]
pub(crate) struct Heads {
    /// The entries of each file's first group; empty if no machine has started here.
    pub(crate) entries: Vec<Entry>,
    /// A number that no group has yet, and that is above all others.
    pub(crate) unused: u64,
}

/// The contents of a file.
struct Groups {
    /// The number that the next group would have.
    next: u64,
    /// Where the complete groups end.
    end: u64,
    /// What follows them.
    rest: Rest,
}

/// Takes the entries of a group; returns whether it wants more.
pub(crate) type Take<'a> = &'a mut dyn FnMut(Vec<Entry>) -> Result<bool, LogError>;

impl Directory {
    /// Opens the directory; creates it if it does not exist.
    pub(crate) fn open(path: &Path, of: &Identity) -> Result<Directory, LogError> {
        if !path.is_dir() {
            fs::create_dir_all(path).map_err(io_error(path, "create the directory"))?;
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
        Ok(directory)
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

    /// Returns the numbers of the files of a kind, in order.
    fn numbers(&self, kind: &str) -> Result<Vec<u64>, LogError> {
        let names = self.names()?;
        let number = |name: &String| name.strip_prefix(kind)?.parse().ok();
        let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Removes files that only earlier snapshots needed, and incomplete ones.
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

    fn damaged(&self, file: &Path, offset: u64, why: impl Into<String>) -> LogError {
        LogError::Damaged {
            directory: self.path.clone(),
            file: file.to_owned(),
            offset,
            why: why.into(),
        }
    }

    /// Reads the first group of each file. Each life of a machine begins with a new file, so all lives are among them.
    pub(crate) fn heads(&self) -> Result<Heads, LogError> {
        let (mut entries, mut unused) = (Vec::new(), 1);
        let logs = self.numbers(LOG)?;
        let last = logs.last().map(|number| self.file(LOG, *number));
        let logs = logs
            .into_iter()
            .map(|number| (self.file(LOG, number), number, number));
        let snapshot = self.numbers(SNAPSHOT)?.pop();
        let snapshot = snapshot.map(|number| (self.file(SNAPSHOT, number), 1, number));
        for (path, first, number) in snapshot.into_iter().chain(logs) {
            let mut frames = self.frames(&path, first)?;
            let group = frames.next().map_err(io_error(&path, "read"))?;
            let group = group
                .map(|group| self.decode(&path, 0, group))
                .transpose()?;
            let is_damaged = |frames: Frames<_>| -> Result<bool, LogError> {
                let rest = frames.rest().map_err(io_error(&path, "read"))?;
                Ok(last.as_ref() != Some(&path) || rest == Rest::Damaged)
            };
            match group {
                Some(group) => entries.extend(group),
                None if is_damaged(frames)? => {
                    return Err(self.damaged(&path, 0, "incomplete group, followed by others"));
                }
                // The life had not begun.
                None => {}
            }
            let length = fs::metadata(&path).map_err(io_error(&path, "read"))?.len();
            unused = unused.max(number + length / frame::SHORTEST + 1);
        }
        Ok(Heads { entries, unused })
    }

    /// Passes all entries on, group by group, those of the snapshot first, and then makes the log ready for appending.
    /// Returns `None` if `take` wanted no more.
    pub(crate) fn read(&self, take: Take<'_>) -> Result<Option<End>, LogError> {
        let logs = self.numbers(LOG)?;
        let mut end = End { next: 1, cut: 0 };
        let Some(at) = self.numbers(SNAPSHOT)?.pop() else {
            return match logs.first() {
                Some(first) => {
                    let why = "the snapshot before it is missing";
                    Err(self.damaged(&self.file(LOG, *first), 0, why))
                }
                None => Ok(Some(end)),
            };
        };
        let path = self.file(SNAPSHOT, at);
        let mut is_whole = false;
        let mut take_one = |group: Vec<Entry>| {
            is_whole = group.last() == Some(&Entry::End);
            take(group)
        };
        let Some(read) = self.groups(&path, 1, &mut take_one)? else {
            return Ok(None);
        };
        if read.rest != Rest::Nothing || !is_whole {
            return Err(self.damaged(&path, read.end, "incomplete snapshot"));
        }
        end.next = at;
        let logs: Vec<u64> = logs.into_iter().filter(|number| *number >= at).collect();
        for (nth, number) in logs.iter().enumerate() {
            let path = self.file(LOG, *number);
            let is_last = nth + 1 == logs.len();
            if *number != end.next {
                let why = format!("group {} before it is missing", end.next);
                return Err(self.damaged(&path, 0, why));
            }
            let Some(read) = self.groups(&path, *number, take)? else {
                return Ok(None);
            };
            match read.rest {
                Rest::Nothing => {}
                Rest::Torn if is_last => {}
                Rest::Torn | Rest::Damaged => {
                    let why = "incomplete group, followed by others";
                    return Err(self.damaged(&path, read.end, why));
                }
            }
            end.next = read.next;
            if read.end == 0 {
                let length = fs::metadata(&path).map_err(io_error(&path, "read"))?.len();
                fs::remove_file(&path).map_err(io_error(&path, "remove"))?;
                end.cut = length;
            } else if is_last {
                end.cut = self.rewrite(&path, read.end)?;
            }
        }
        self.tidy(at)?;
        Ok(Some(end))
    }

    fn frames(&self, path: &Path, first: u64) -> Result<Frames<BufReader<File>>, LogError> {
        let opened = || {
            let file = File::open(path)?;
            let length = file.metadata()?.len();
            Ok(Frames::new(
                BufReader::with_capacity(READ_BYTES, file),
                length,
                first,
            ))
        };
        opened().map_err(io_error(path, "read"))
    }

    fn decode(&self, path: &Path, at: u64, group: &[u8]) -> Result<Vec<Entry>, LogError> {
        Entry::decode_all(group).map_err(|error| self.damaged(path, at, error.to_string()))
    }

    /// Passes on the entries of each complete group of a file. Returns `None` if `take` wanted no more.
    fn groups(&self, path: &Path, first: u64, take: Take<'_>) -> Result<Option<Groups>, LogError> {
        let mut frames = self.frames(path, first)?;
        loop {
            let at = frames.end();
            let group = frames.next().map_err(io_error(path, "read"))?;
            let Some(group) = group else { break };
            if !take(self.decode(path, at, group)?)? {
                return Ok(None);
            }
        }
        Ok(Some(Groups {
            next: frames.next_number(),
            end: frames.end(),
            rest: frames.rest().map_err(io_error(path, "read"))?,
        }))
    }

    /// Rewrites the valid part of the last file, and returns the length of what followed it. Its last group may never
    /// have reached the disk although it can be read: the life that wrote it ended before the sync, or the sync failed,
    /// after which another sync of the same pages proves nothing.
    fn rewrite(&self, path: &Path, end: u64) -> Result<u64, LogError> {
        let old = File::open(path).map_err(io_error(path, "read"))?;
        let length = old.metadata().map_err(io_error(path, "read"))?.len();
        let mut new = Unfinished::create(path.to_owned())?;
        let copied = io::copy(&mut old.take(end), &mut new.file);
        copied.map_err(io_error(&new.unfinished, "write"))?;
        new.finish()?;
        sync(&self.path)?;
        Ok(length.saturating_sub(end))
    }

    /// Creates a file for groups from this number on.
    pub(super) fn segment(&self, first: u64) -> Result<(PathBuf, File), LogError> {
        let path = self.file(LOG, first);
        let made = OpenOptions::new().create_new(true).append(true).open(&path);
        let file = made.map_err(io_error(&path, "create the file"))?;
        sync(&self.path)?;
        Ok((path, file))
    }

    /// Begins a snapshot of the state after all groups before this number.
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
    /// Writes entries, those of one call in one frame.
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

    /// Completes the snapshot: from now on it replaces everything before it. Returns its length.
    pub(crate) fn finish(mut self) -> Result<u64, LogError> {
        self.put(&[Entry::End])?;
        self.file.finish()?;
        sync(&self.directory.path)?;
        self.directory.tidy(self.at)?;
        Ok(self.bytes)
    }
}

/// A file that gets its final name when it is complete.
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
        let file = File::create(&unfinished).map_err(io_error(&unfinished, "create the file"))?;
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
        renamed.map_err(io_error(&self.path, "rename a file to it"))
    }
}

/// Makes the current names in a directory durable.
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
