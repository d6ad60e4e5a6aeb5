//! Tests of the log's files: what is written is read back, and damage is detected.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};

use super::directory::End;
use super::*;

/// The contents of a directory.
#[derive(Debug)]
struct Contents {
    entries: Vec<Entry>,
    next: u64,
    cut: u64,
}

/// A folder that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("dunlin-log-{}-{name}", std::process::id());
        Folder(std::env::temp_dir().join(name))
    }

    fn open(&self) -> Result<(Directory, Contents), LogError> {
        let directory = Directory::open(&self.0, &Identity("machine 0".to_owned()))?;
        let heads = directory.heads();
        let mut entries = Vec::new();
        let read = directory.read(&mut |mut group| {
            entries.append(&mut group);
            Ok(true)
        });
        let End { next, cut } = read?.unwrap();
        let heads = heads.unwrap();
        assert!(heads.unused >= next);
        assert_eq!(heads.entries.first(), entries.first());
        entries.retain(|entry| *entry != Entry::End);
        Ok((directory, Contents { entries, next, cut }))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn entry(number: u64) -> Entry {
    Entry::Serve {
        epoch: crate::membership::Epoch(number),
        database: 1,
    }
}

fn entries(numbers: impl IntoIterator<Item = u64>) -> Vec<Entry> {
    numbers.into_iter().map(entry).collect()
}

/// A directory with a snapshot of entry 0, and then one group for each of the others.
fn begun(folder: &Folder, count: u64) {
    let (directory, contents) = folder.open().unwrap();
    assert_eq!((contents.entries.len(), contents.next), (0, 1));
    let mut snapshot = directory.snapshot(1).unwrap();
    snapshot.put(&[entry(0)]).unwrap();
    snapshot.finish().unwrap();
    let log = LogFile::begin(&Arc::new(directory), 1, u64::MAX, || ()).unwrap();
    for number in 1..=count {
        let position = Appender::new(log.shared()).append(&entry(number));
        assert_eq!(position, number);
        assert!(log.shared().wait(position));
    }
}

const LOG: &str = "log-00000000000000000001";

#[test]
fn a_log_that_is_cut_anywhere_has_its_whole_groups_and_goes_on_behind_them() {
    let folder = Folder::new("cut");
    begun(&folder, 3);
    let whole = fs::read(folder.file(LOG)).unwrap();
    let group = whole.len() / 3;
    for length in 0..whole.len() {
        fs::write(folder.file(LOG), &whole[..length]).unwrap();
        let (_directory, contents) = folder.open().unwrap();
        let groups = (length / group) as u64;
        assert_eq!(contents.entries, entries(0..=groups), "{length}");
        assert_eq!(contents.next, groups + 1);
        assert_eq!(contents.cut, (length % group) as u64);
        // And it stays so.
        let left = fs::metadata(folder.file(LOG)).map_or(0, |file| file.len());
        assert_eq!(left, groups * group as u64);
    }
}

#[test]
fn a_flipped_bit_before_the_last_group_is_damage_with_its_place() {
    let folder = Folder::new("flip");
    begun(&folder, 3);
    let whole = fs::read(folder.file(LOG)).unwrap();
    let group = whole.len() / 3;
    for at in (0..2 * group).step_by(3) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(folder.file(LOG), &bytes).unwrap();
        let damaged = (at / group * group) as u64;
        match folder.open() {
            Err(LogError::Damaged { file, offset, .. }) => {
                assert_eq!((file, offset), (folder.file(LOG), damaged));
            }
            other => panic!("{at}: {other:?}"),
        }
    }
    // The same in a file that is followed by another, and without that.
    fs::write(folder.file(LOG), &whole[..whole.len() - 1]).unwrap();
    let next = "log-00000000000000000004";
    fs::write(folder.file(next), b"").unwrap();
    assert!(matches!(folder.open(), Err(LogError::Damaged { .. })));
    fs::remove_file(folder.file(LOG)).unwrap();
    assert!(matches!(folder.open(), Err(LogError::Damaged { .. })));
}

#[test]
fn the_beginnings_of_files_are_read_without_the_rest_and_reading_can_be_given_up() {
    let folder = Folder::new("heads");
    begun(&folder, 3);
    let path = folder.file(LOG);
    let mut bytes = fs::read(&path).unwrap();
    let (group, last) = (bytes.len() / 3, bytes.len() - 1);
    let (directory, contents) = folder.open().unwrap();
    assert_eq!(contents.entries, entries(0..=3));
    let mut seen = Vec::new();
    let read = directory.read(&mut |group| {
        seen.extend(group);
        Ok(seen.len() < 2)
    });
    assert_eq!((read.unwrap(), seen), (None, [entry(0), Entry::End].into()));
    // Damage behind the first group is not checked here.
    bytes[last] ^= 1;
    bytes[group + 20] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(directory.heads().unwrap().entries, entries([0, 1]));
    // Damage in the first group is detected if another follows: a life of the machine may have been recorded there.
    bytes[group + 20] ^= 1;
    bytes[20] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert!(matches!(directory.heads(), Err(LogError::Damaged { .. })));
}

#[test]
fn groups_of_many_are_in_order_and_a_snapshot_takes_their_place() {
    let folder = Folder::new("snapshot");
    begun(&folder, 1);
    let (directory, contents) = folder.open().unwrap();
    assert_eq!((&contents.entries, contents.next), (&entries([0, 1]), 2));
    let directory = Arc::new(directory);
    let log = LogFile::begin(&directory, 2, u64::MAX, || ()).unwrap();
    let (order, heard) = mpsc::channel();
    let done = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (shared, order, done) = (log.shared(), order.clone(), &done);
            scope.spawn(move || {
                let mut appender = Appender::new(shared);
                for number in 0..100 {
                    let position = appender.append(&entry(1000 * thread + number));
                    let (order, done) = (order.clone(), Arc::clone(done));
                    let then = move || {
                        order.send(position).unwrap();
                        done.fetch_add(1, Ordering::Relaxed);
                    };
                    shared.when_safe(position, Box::new(then));
                }
            });
        }
    });
    assert!(log.shared().wait(log.shared().appended()));
    let at = log.shared().rotate();
    let mut snapshot = directory.snapshot(at).unwrap();
    snapshot.put(&entries([7])).unwrap();
    snapshot.finish().unwrap();
    Appender::new(log.shared()).append(&entry(8));
    let statistics = log.shared().statistics();
    assert_eq!(statistics.entries, 400);
    assert_eq!(statistics.groups, at - 2);
    drop(log);
    drop(order);
    assert_eq!(done.load(Ordering::Relaxed), 400);
    let heard: Vec<u64> = heard.into_iter().collect();
    assert!(heard.iter().all(|position| *position < at));
    drop(directory);
    let (_directory, contents) = folder.open().unwrap();
    assert_eq!((contents.entries, contents.next), (entries([7, 8]), at + 1));
    let logs = fs::read_dir(&folder.0).unwrap().filter(|file| {
        let name = file.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("log-")
    });
    assert_eq!(logs.count(), 1);
}

#[test]
fn a_disk_that_fails_is_told_and_nothing_is_safe_any_more() {
    let folder = Folder::new("fails");
    begun(&folder, 1);
    let (directory, contents) = folder.open().unwrap();
    let (failed, told) = mpsc::channel();
    let fails = move || failed.send(()).unwrap();
    // No file can be created without the directory.
    fs::remove_dir_all(&folder.0).unwrap();
    let log = LogFile::begin(&Arc::new(directory), contents.next, u64::MAX, fails).unwrap();
    let position = Appender::new(log.shared()).append(&entry(2));
    let (answer, answered) = mpsc::channel();
    let then = Box::new(move || answer.send(()).unwrap());
    log.shared().when_safe(position, then);
    told.recv().unwrap();
    assert!(!log.shared().wait(position));
    // It was dropped without being called.
    assert!(answered.recv().is_err());
}
