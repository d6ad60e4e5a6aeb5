//! Compares the namespace with a simple model, and with itself after it was reloaded from its records.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{Done, Namespace, Now};
use crate::types::{DataServer, Errno, Extent, Ino, Outcome, EXTENT_BYTES, ROOT, S_IFDIR, S_IFREG};
use crate::wire::{decode, Answer, Ask, Change, Envelope};

const SESSIONS: [u64; 2] = [7, 8];
const NAMES: [&[u8]; 3] = [b"a", b"b", b"c"];

/// A tree of names: what `mkdir`, `mknod`, `link`, `rename`, `unlink` and `rmdir` do to a set of paths.
#[derive(Default)]
struct Model {
    /// Each path with the number of its file, or `None` for a directory.
    paths: BTreeMap<Vec<usize>, Option<usize>>,
    files: usize,
}

#[derive(Clone, Debug)]
enum Step {
    File(Vec<usize>),
    Directory(Vec<usize>),
    Unlink(Vec<usize>),
    Rmdir(Vec<usize>),
    Rename(Vec<usize>, Vec<usize>),
    Link(Vec<usize>, Vec<usize>),
}

impl Model {
    fn is_directory(&self, path: &[usize]) -> Outcome<()> {
        match self.paths.get(path) {
            _ if path.is_empty() => Ok(()),
            Some(None) => Ok(()),
            Some(Some(_)) => Err(Errno::NOTDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    /// What exists at a path. All parents of a path must be directories.
    fn at(&self, path: &[usize]) -> Outcome<Option<Option<usize>>> {
        for length in 0..path.len() {
            self.is_directory(&path[..length])?;
        }
        Ok(self.paths.get(path).copied())
    }

    fn is_empty(&self, path: &[usize]) -> bool {
        let below = |other: &&Vec<usize>| other.len() > path.len() && other.starts_with(path);
        self.paths.keys().filter(below).count() == 0
    }

    fn step(&mut self, step: &Step) -> Outcome<()> {
        match step {
            Step::File(path) | Step::Directory(path) => {
                if self.at(path)?.is_some() {
                    return Err(Errno::EXIST.into());
                }
                self.files += 1;
                let directory = matches!(step, Step::Directory(_));
                let body = (!directory).then_some(self.files);
                self.paths.insert(path.clone(), body);
            }
            Step::Unlink(path) => match self.at(path)?.ok_or(Errno::NOENT)? {
                None => return Err(Errno::ISDIR.into()),
                Some(_) => drop(self.paths.remove(path)),
            },
            Step::Rmdir(path) => match self.at(path)?.ok_or(Errno::NOENT)? {
                Some(_) => return Err(Errno::NOTDIR.into()),
                None if !self.is_empty(path) => return Err(Errno::NOTEMPTY.into()),
                None => drop(self.paths.remove(path)),
            },
            Step::Link(from, to) => {
                let file = self.at(from)?.ok_or(Errno::NOENT)?.ok_or(Errno::PERM)?;
                if self.at(to)?.is_some() {
                    return Err(Errno::EXIST.into());
                }
                self.paths.insert(to.clone(), Some(file));
            }
            Step::Rename(from, to) => return self.rename(from, to),
        }
        Ok(())
    }

    fn rename(&mut self, from: &[usize], to: &[usize]) -> Outcome<()> {
        let moved = self.at(from)?.ok_or(Errno::NOENT)?;
        let there = self.at(to)?;
        if to.len() > from.len() && to.starts_with(from) {
            return Err(Errno::INVAL.into());
        }
        if from == to || (moved.is_some() && there == Some(moved)) {
            return Ok(());
        }
        match (moved, there) {
            (_, None) => {}
            (None, Some(None)) if !self.is_empty(to) => return Err(Errno::NOTEMPTY.into()),
            (None, Some(Some(_))) => return Err(Errno::NOTDIR.into()),
            (Some(_), Some(None)) => return Err(Errno::ISDIR.into()),
            _ => {}
        }
        self.paths.remove(to);
        let below: Vec<_> = self
            .paths
            .keys()
            .filter(|path| path.starts_with(from))
            .cloned()
            .collect();
        for path in below {
            let body = self.paths.remove(&path).flatten();
            let new = to.iter().chain(&path[from.len()..]).copied().collect();
            self.paths.insert(new, body);
        }
        Ok(())
    }
}

/// A namespace with its driver, and the records that a store would have.
struct Ours {
    namespace: Namespace,
    sequence: u32,
    store: BTreeMap<Vec<u8>, Vec<u8>>,
    now: i64,
    steady_ms: u64,
}

impl Ours {
    fn new() -> Self {
        let mut namespace = Namespace::new(Self::now(0));
        namespace.set_lease_ms(1000);
        for session in SESSIONS {
            namespace.begin_session(session, 1000).unwrap();
        }
        for id in 0..2 {
            let address = String::new();
            let about = DataServer {
                id,
                incarnation: 1,
                extents: 40,
                address,
            };
            assert!(namespace.know_server(about).is_some());
        }
        let mut ours = Self {
            namespace,
            sequence: 0,
            store: BTreeMap::new(),
            now: 0,
            steady_ms: 0,
        };
        ours.keep();
        ours
    }

    fn now(at: i64) -> Now {
        Now {
            wall: at,
            steady_ms: 0,
        }
    }

    fn at(&self) -> Now {
        Now {
            wall: self.now,
            steady_ms: self.steady_ms,
        }
    }

    fn keep(&mut self) {
        for (key, value) in self.namespace.take_records() {
            match value {
                Some(value) => drop(self.store.insert(key, value)),
                None => drop(self.store.remove(&key)),
            }
        }
    }

    /// Makes a change; `None` if it would wait.
    fn change(&mut self, session: u64, change: Change<'_>) -> Option<Outcome<Answer>> {
        self.sequence += 1;
        self.now += 1;
        let envelope = Envelope {
            session,
            slot: 0,
            sequence: self.sequence,
            change,
        };
        let done = self.namespace.change(&envelope, self.at());
        let Done::Answered { answer, .. } = done else {
            return None;
        };
        let outcome: Outcome<Answer> = decode(&answer).unwrap();
        if outcome.is_ok() && !matches!(envelope.change, Change::Bye) {
            let again = self.namespace.change(&envelope, self.at());
            assert!(matches!(again, Done::Answered { answer: second, .. } if second == answer));
        }
        self.keep();
        Some(outcome)
    }

    fn look(&self, path: &[usize]) -> Outcome<Ino> {
        path.iter().try_fold(ROOT, |parent, name| {
            match self
                .namespace
                .ask(&Ask::Lookup {
                    parent,
                    name: NAMES[*name],
                })
                .0?
            {
                Answer::Attr(attr) => Ok(attr.ino),
                other => panic!("{other:?}"),
            }
        })
    }

    fn step(&mut self, step: &Step) -> Outcome<()> {
        let split = |ours: &Self, path: &[usize]| -> Outcome<(Ino, &'static [u8])> {
            let (last, above) = path.split_last().unwrap();
            Ok((ours.look(above)?, NAMES[*last]))
        };
        let change = match step {
            Step::File(path) | Step::Directory(path) => {
                let (parent, name) = split(self, path)?;
                let directory = matches!(step, Step::Directory(_));
                let mode = if directory { S_IFDIR } else { S_IFREG };
                make(parent, name, mode)
            }
            Step::Unlink(path) => {
                let (parent, name) = split(self, path)?;
                Change::Unlink { parent, name }
            }
            Step::Rmdir(path) => {
                let (parent, name) = split(self, path)?;
                Change::Rmdir { parent, name }
            }
            Step::Rename(from, to) => {
                let (parent, name) = split(self, from)?;
                // In the order of path lookup: the old name first.
                self.look(from)?;
                let (new_parent, new_name) = split(self, to)?;
                Change::Rename {
                    parent,
                    name,
                    new_parent,
                    new_name,
                    flags: 0,
                }
            }
            Step::Link(from, to) => {
                let ino = self.look(from)?;
                if self.namespace.node(ino)?.is_directory() {
                    return Err(Errno::PERM.into());
                }
                let (parent, name) = split(self, to)?;
                Change::Link { ino, parent, name }
            }
        };
        self.change(SESSIONS[0], change).unwrap().map(drop)
    }

    /// It has no faults, and the records alone produce the same namespace.
    fn check(&self) {
        let findings = self.namespace.check();
        assert_eq!(findings.faults, []);
        let (again, faults) = Namespace::load(self.store.clone(), 1000);
        assert_eq!(faults, []);
        assert_eq!(again.check(), findings);
        assert_eq!(shape(&again), shape(&self.namespace));
    }
}

fn make(parent: Ino, name: &[u8], kind: u32) -> Change<'_> {
    let mode = kind | 0o644;
    Change::Make {
        parent,
        name,
        mode,
        uid: 1,
        gid: 2,
        rdev: 0,
        target: &[],
        lease: false,
    }
}

/// The whole state of a namespace, as text.
fn shape(namespace: &Namespace) -> BTreeSet<String> {
    let node =
        |(ino, node): (&Ino, &super::Node)| format!("{ino} {:?} {:?}", node.inode, node.body);
    let session = |(id, known): (&u64, &super::Session)| {
        let slots: BTreeMap<_, _> = known.slots.iter().collect();
        format!("{id} {} {slots:?}", known.ended)
    };
    let nodes = namespace.nodes.iter().map(node);
    let sessions = namespace.sessions.iter().map(session);
    let leases = namespace.written_leases().map(|lease| format!("{lease:?}"));
    let held = namespace.space.every_held().map(|held| format!("{held:?}"));
    nodes.chain(sessions).chain(leases).chain(held).collect()
}

fn path() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..NAMES.len(), 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        path().prop_map(Step::File),
        path().prop_map(Step::Directory),
        path().prop_map(Step::Directory),
        path().prop_map(Step::Unlink),
        path().prop_map(Step::Rmdir),
        (path(), path()).prop_map(|(from, to)| Step::Rename(from, to)),
        (path(), path()).prop_map(|(from, to)| Step::Link(from, to)),
    ]
}

/// Operations of sessions on the content of a few files.
#[derive(Clone, Copy, Debug)]
enum Use {
    Lease(usize, usize, bool),
    Release(usize, usize),
    Reserve(usize, u32),
    Commit {
        session: usize,
        file: usize,
        index: u32,
        size: u32,
        cut: Option<u32>,
    },
    Unlink(usize),
    End(usize),
    Settle(usize),
    Restart,
}

fn usage() -> impl Strategy<Value = Use> {
    let (session, file) = (0..2usize, 0..3usize);
    prop_oneof![
        3 => (session.clone(), file.clone(), any::<bool>()).prop_map(|(s, f, w)| Use::Lease(s, f, w)),
        1 => (session.clone(), file.clone()).prop_map(|(s, f)| Use::Release(s, f)),
        2 => (session.clone(), 0..20u32).prop_map(|(s, n)| Use::Reserve(s, n)),
        6 => (session.clone(), file.clone(), 0..4u32, 0..5u32, prop::option::of(0..4u32)).prop_map(
            |(session, file, index, size, cut)| Use::Commit { session, file, index, size, cut }
        ),
        1 => file.prop_map(Use::Unlink),
        1 => session.clone().prop_map(Use::End),
        1 => session.prop_map(Use::Settle),
        1 => Just(Use::Restart),
    ]
}

/// Two sessions over three files; a session that ended begins again under the next name.
struct Content {
    ours: Ours,
    names: [u64; 2],
    before: [Option<u64>; 2],
    reserved: BTreeMap<u64, Vec<Extent>>,
    inos: [Ino; 3],
}

impl Content {
    fn new() -> Self {
        let mut ours = Ours::new();
        let inos = [0, 1, 2].map(|file| {
            let made = ours
                .change(SESSIONS[0], make(ROOT, NAMES[file], S_IFREG))
                .unwrap();
            let Ok(Answer::Attr(attr)) = made else {
                panic!("{made:?}")
            };
            attr.ino
        });
        Self {
            ours,
            names: SESSIONS,
            before: [None; 2],
            reserved: BTreeMap::new(),
            inos,
        }
    }

    fn anew(&mut self, which: usize) {
        self.before[which] = Some(self.names[which]);
        self.names[which] += 10;
        self.ours
            .namespace
            .begin_session(self.names[which], self.ours.steady_ms + 1000)
            .unwrap();
        self.ours.keep();
    }

    fn mapped(&self) -> BTreeSet<Extent> {
        let maps = self
            .ours
            .namespace
            .nodes
            .values()
            .filter_map(|node| match &node.body {
                super::Body::File(map) => Some(map.values().copied()),
                _ => None,
            });
        maps.flatten().collect()
    }

    fn go(&mut self, what: Use) {
        match what {
            Use::Lease(session, file, write) => {
                let ino = self.inos[file];
                self.ours
                    .change(self.names[session], Change::Lease { ino, write });
            }
            Use::Release(session, file) => {
                let ino = self.inos[file];
                self.ours
                    .change(self.names[session], Change::Release { ino });
            }
            Use::Reserve(session, count) => {
                let session = self.names[session];
                let answer = self.ours.change(session, Change::Reserve { count });
                if let Some(Ok(Answer::Extents(extents))) = answer {
                    self.reserved.entry(session).or_default().extend(extents);
                }
            }
            Use::Commit {
                session,
                file,
                index,
                size,
                cut,
            } => {
                let (session, ino) = (self.names[session], self.inos[file]);
                let mine = self.reserved.entry(session).or_default();
                let map: Vec<_> = mine
                    .last()
                    .map(|extent| (index, *extent))
                    .into_iter()
                    .collect();
                let size = u64::from(size) * EXTENT_BYTES;
                let commit = Change::Commit {
                    ino,
                    size,
                    mtime: Some(3),
                    cut,
                    map,
                };
                if let Some(Ok(_)) = self.ours.change(session, commit.clone()) {
                    self.reserved.get_mut(&session).unwrap().pop();
                    let again = self.ours.change(session, commit);
                    assert!(matches!(again, Some(Ok(_))), "{again:?}");
                }
            }
            Use::Unlink(file) => {
                let unlink = Change::Unlink {
                    parent: ROOT,
                    name: NAMES[file],
                };
                self.ours.change(self.names[0], unlink);
            }
            Use::End(which) => {
                let ended = self.names[which];
                self.ours.steady_ms += 100_000;
                let at = self.ours.steady_ms;
                let namespace = &mut self.ours.namespace;
                namespace
                    .renew(self.names[1 - which], at + 1000, true)
                    .unwrap();
                let writable: BTreeSet<_> = namespace
                    .written_leases()
                    .filter(|(session, _)| *session == ended)
                    .map(|(_, ino)| ino)
                    .collect();
                let maps = writable
                    .iter()
                    .filter_map(|ino| match &namespace.nodes[ino].body {
                        super::Body::File(map) => Some(map.values().copied().collect::<Vec<_>>()),
                        _ => None,
                    });
                let mut might_write: BTreeSet<Extent> = maps.flatten().collect();
                might_write.extend(self.reserved.remove(&ended).unwrap_or_default());
                namespace.end_expired(Now {
                    wall: 0,
                    steady_ms: at,
                });
                let mut stuck = false;
                for (session, ino) in namespace.to_move() {
                    match namespace.plan_move(ino) {
                        Ok(pairs) => assert!(namespace.finish_move(session, ino, &pairs)),
                        Err(refused) => {
                            assert_eq!(refused, Errno::NOSPC.into());
                            stuck = true;
                        }
                    }
                }
                for session in self.names {
                    let renewed = namespace.renew(session, at + 1000, true);
                    assert_eq!(renewed.is_err(), session == ended);
                }
                self.ours.keep();
                if !stuck {
                    // The rule that holds without the device's help.
                    assert!(
                        self.mapped().is_disjoint(&might_write),
                        "a stale write would be seen"
                    );
                    for extent in might_write {
                        let held = self.ours.namespace.space.held(extent);
                        assert!(
                            held.is_some(),
                            "{extent:?} is free, and may still be written"
                        );
                    }
                }
                self.anew(which);
            }
            Use::Settle(which) => {
                if let Some(ended) = self.before[which] {
                    self.ours
                        .change(self.names[which], Change::Settle { ended });
                }
            }
            Use::Restart => {
                let (namespace, faults) =
                    Namespace::load(self.ours.store.clone(), self.ours.steady_ms + 1000);
                assert_eq!(faults, []);
                self.ours.namespace = namespace;
                self.ours.namespace.set_lease_ms(1000);
                for session in self.names {
                    self.ours
                        .namespace
                        .renew(session, self.ours.steady_ms + 1000, true)
                        .unwrap();
                }
                self.ours.keep();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn names_are_what_a_model_says(steps in prop::collection::vec(step(), 1..60)) {
        let (mut ours, mut model) = (Ours::new(), Model::default());
        for step in &steps {
            prop_assert_eq!(ours.step(step), model.step(step), "{:?}", step);
        }
        for (path, body) in &model.paths {
            let ino = ours.look(path).unwrap();
            prop_assert_eq!(ours.namespace.node(ino).unwrap().is_directory(), body.is_none());
        }
        let names: usize = ours.namespace.nodes.values().map(|node| match &node.body {
            super::Body::Directory { entries, .. } => entries.len(),
            _ => 0,
        }).sum();
        prop_assert_eq!(names, model.paths.len());
        ours.check();
    }

    #[test]
    fn content_is_one_sessions_and_space_is_not_lost(uses in prop::collection::vec(usage(), 1..60)) {
        let mut content = Content::new();
        for what in uses {
            content.go(what);
            content.ours.check();
        }
    }

    #[test]
    fn strange_bytes_change_nothing(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode::<Ask<'_>>(&bytes);
        let mut ours = Ours::new();
        if let Some(envelope) = decode::<Envelope<'_>>(&bytes) {
            ours.namespace.change(&envelope, Ours::now(1));
            ours.keep();
        }
        ours.check();
    }

    #[test]
    fn strange_records_are_faults(mut key in prop::collection::vec(any::<u8>(), 0..12), which in 0..9usize, value in prop::collection::vec(any::<u8>(), 0..20)) {
        let mut ours = Ours::new();
        ours.step(&Step::Directory(vec![0])).unwrap();
        key.insert(0, b"cdeilmrsv"[which]);
        ours.store.insert(key, value);
        let (namespace, _) = Namespace::load(ours.store, 1000);
        namespace.check();
    }
}
