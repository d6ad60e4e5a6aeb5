//! Files, directories and content, through the client.

mod common;

use std::time::Duration;

use common::{eventually, serve_data, Cluster};
use dunlin_fs::client::{Mode, SetAttributes};
use dunlin_fs::types::{Errno, EXTENT_BYTES, ROOT, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG};
use dunlin_fs::wire::Change;
use dunlin_fs::FsError;

const LEASE: Duration = Duration::from_secs(10);

fn refused<T: std::fmt::Debug>(outcome: Result<T, FsError>) -> Errno {
    outcome.unwrap_err().errno()
}

#[test]
fn what_is_written_is_read_and_outlives_the_metadata_server() {
    let mut cluster = Cluster::new(2, 16 << 20, LEASE);
    let system = cluster.client();
    system.create_directory("/a").unwrap();
    let file = system.create_new("/a/b").unwrap();
    let bytes: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    file.write_at(5, &bytes).unwrap();
    assert_eq!(file.attributes().unwrap().size, 300_005);
    assert_eq!(file.read_at(0, 5).unwrap(), [0; 5]);
    assert_eq!(file.read_at(5, 400_000).unwrap(), bytes);
    file.sync().unwrap();

    cluster.restart_meta();
    assert_eq!(file.read_at(5, 400_000).unwrap(), bytes);
    let other = cluster.client();
    let again = other.open("/a/b").unwrap();
    assert_eq!(again.read_at(5, 400_000).unwrap(), bytes);
    assert_eq!(other.list("/a").unwrap(), ["b"]);
    drop((again, other, file, system));
    let findings = cluster.check();
    assert_eq!((findings.files, findings.directories), (1, 2));
    assert_eq!((findings.mapped, findings.sessions), (10, 0));
    assert_eq!((findings.reserved, findings.quarantined), (0, 0));
}

#[test]
fn holes_and_what_was_cut_off_are_zeros() {
    let cluster = Cluster::new(1, 16 << 20, LEASE);
    let system = cluster.client();
    let file = system.create_new("/f").unwrap();
    file.write_at(0, &[7; 100_000]).unwrap();
    file.set_len(10).unwrap();
    file.write_at(90_000, &[8; 10]).unwrap();
    let read = file.read_at(0, 200_000).unwrap();
    assert_eq!(read.len(), 90_010);
    assert!(read[..10].iter().all(|byte| *byte == 7));
    assert!(read[10..90_000].iter().all(|byte| *byte == 0));
    file.sync().unwrap();
    let extents = file.attributes().unwrap().extents;
    assert_eq!(extents, 2, "a hole has no extents");
    file.set_len(EXTENT_BYTES * 3).unwrap();
    assert!(file
        .read_at(90_010, 1 << 20)
        .unwrap()
        .iter()
        .all(|byte| *byte == 0));
}

/// The lease of an open file went to another client, and came back to nobody.
#[test]
fn a_file_that_is_open_without_a_lease_stays_when_its_name_is_removed() {
    let cluster = Cluster::new(1, 16 << 20, LEASE);
    let (one, two) = (cluster.client(), cluster.client());
    let before = one.space().unwrap().files;
    for by_itself in [true, false] {
        let file = one.create_new("/f").unwrap();
        let theirs = two.open("/f").unwrap();
        theirs.write_at(0, b"written").unwrap();
        theirs.sync().unwrap();
        drop(theirs);
        let remover = if by_itself { &one } else { &two };
        remover.remove("/f").unwrap();
        // As the other client does a while after the file was closed.
        let ino = file.ino();
        two.meta().change(Change::Release { ino }).unwrap();
        assert_eq!(file.read_at(0, 100).unwrap(), b"written", "{by_itself}");
        drop(file);
        eventually("it is gone when it is closed", || {
            one.space().unwrap().files == before
        });
    }
}

#[test]
fn a_file_without_a_name_stays_while_it_is_open() {
    let cluster = Cluster::new(1, 1 << 20, LEASE);
    let (one, two) = (cluster.client(), cluster.client());
    let file = one.create_new("/f").unwrap();
    file.write_at(0, b"still here").unwrap();
    file.sync().unwrap();
    let reader = two.open("/f").unwrap();
    one.remove("/f").unwrap();
    assert_eq!(refused(one.find("/f")), Errno::NOENT);
    assert_eq!(reader.read_at(0, 100).unwrap(), b"still here");
    assert_eq!(file.read_at(0, 100).unwrap(), b"still here");
    drop((file, reader));
    drop((one, two));
    let findings = cluster.check();
    assert_eq!((findings.nameless, findings.mapped), (0, 0));
    assert_eq!(findings.free, findings.extents);
}

#[test]
fn names_attributes_and_links() {
    let cluster = Cluster::new(1, 1 << 20, LEASE);
    let system = cluster.client();
    let mode = |mode| Mode {
        mode,
        uid: 3,
        gid: 4,
    };
    let directory = system
        .make(ROOT, b"d", mode(S_IFDIR | 0o2750), 0, &[])
        .unwrap();
    let file = system
        .make(directory.ino, b"f", mode(S_IFREG | 0o600), 0, &[])
        .unwrap();
    assert_eq!((file.uid, file.gid, file.mode), (3, 4, S_IFREG | 0o600));
    let link = system
        .make(ROOT, b"l", mode(S_IFLNK | 0o777), 0, b"d/f")
        .unwrap();
    assert_eq!(system.read_link(link.ino).unwrap(), b"d/f");
    system
        .make(ROOT, b"p", mode(S_IFIFO | 0o600), 0, &[])
        .unwrap();
    assert_eq!(system.link(file.ino, ROOT, b"g").unwrap().nlink, 2);
    assert_eq!(refused(system.link(directory.ino, ROOT, b"h")), Errno::PERM);

    let set = SetAttributes {
        mode: Some(0o4755),
        mtime: Some(5_000_000_007),
        ..SetAttributes::default()
    };
    let attr = system.set_attributes(file.ino, &set).unwrap();
    assert_eq!((attr.mode, attr.mtime), (S_IFREG | 0o4755, 5_000_000_007));

    let another_owner = SetAttributes {
        uid: Some(7),
        clear_privileges: true,
        ..SetAttributes::default()
    };
    let attr = system.set_attributes(file.ino, &another_owner).unwrap();
    assert_eq!((attr.mode, attr.uid), (S_IFREG | 0o755, 7));

    system.set_xattr(file.ino, b"user.a", b"1", 0).unwrap();
    system
        .set_xattr(file.ino, b"user.b", &[9; 60_000], 0)
        .unwrap();
    assert_eq!(system.xattr_names(file.ino).unwrap(), b"user.a\0user.b\0");
    assert_eq!(system.xattr(file.ino, b"user.b").unwrap(), [9; 60_000]);
    system.remove_xattr(file.ino, b"user.a").unwrap();
    assert_eq!(refused(system.xattr(file.ino, b"user.a")), Errno::NODATA);

    system
        .rename((ROOT, b"g"), (directory.ino, b"f"), 0)
        .unwrap();
    system
        .rename((directory.ino, b"f"), (ROOT, b"l"), 0)
        .unwrap();
    assert_eq!(
        system.find("/l").unwrap().nlink,
        2,
        "the other name of the same file stays"
    );
    assert_eq!(refused(system.remove_directory(ROOT, b"l")), Errno::NOTDIR);
    assert_eq!(refused(system.unlink(ROOT, b"d")), Errno::ISDIR);
    assert_eq!(refused(system.lookup(ROOT, b"nothing")), Errno::NOENT);
    let long = [b'x'; 256];
    assert_eq!(
        refused(system.make(ROOT, &long, mode(S_IFREG), 0, &[])),
        Errno::NAMETOOLONG
    );
    assert_eq!(refused(system.lookup(ROOT, &long)), Errno::NAMETOOLONG);
}

#[test]
fn a_directory_of_any_size_is_read_whole() {
    let cluster = Cluster::new(1, 1 << 20, LEASE);
    let system = cluster.client();
    system.create_directory("/d").unwrap();
    let ino = system.find("/d").unwrap().ino;
    let names: Vec<String> = (0..5000).map(|n| format!("{n:040}")).collect();
    let mode = Mode {
        mode: S_IFREG | 0o644,
        uid: 0,
        gid: 0,
    };
    for name in &names {
        system.make(ino, name.as_bytes(), mode, 0, &[]).unwrap();
    }
    assert_eq!(system.list("/d").unwrap(), names);
}

#[test]
fn a_full_data_server_says_so_and_gives_space_again() {
    let cluster = Cluster::new(1, 8 * EXTENT_BYTES, LEASE);
    let system = cluster.client();
    let file = system.create_new("/f").unwrap();
    let much = vec![1; 9 * EXTENT_BYTES as usize];
    assert_eq!(refused(file.write_at(0, &much)), Errno::NOSPC);
    file.set_len(0).unwrap();
    file.write_at(0, &much[..EXTENT_BYTES as usize * 8])
        .unwrap();
    file.sync().unwrap();
    drop(file);
    system.remove("/f").unwrap();
    let file = system.create_new("/g").unwrap();
    eventually("the space of the removed file", || {
        file.write_at(0, &much[..100]).is_ok()
    });
}

#[test]
fn two_clients_see_what_the_other_has_written() {
    let cluster = Cluster::new(2, 4 << 20, LEASE);
    let (one, two) = (cluster.client(), cluster.client());
    drop(one.create_new("/f").unwrap());
    let threads: Vec<_> = [one, two]
        .into_iter()
        .map(|system| {
            std::thread::spawn(move || {
                let file = system.open("/f").unwrap();
                for turn in 0..60u8 {
                    // Whatever is there was written as one, by one of them.
                    let seen = file.read_at(0, 1 << 20).unwrap();
                    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "torn");
                    file.write_at(0, &[turn; 70_000]).unwrap();
                }
                file.sync().unwrap();
                drop(file);
                drop(system);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let findings = cluster.check();
    assert_eq!((findings.mapped, findings.quarantined), (3, 0));
}

#[test]
fn what_sync_data_has_brought_outlives_the_data_server() {
    let mut cluster = Cluster::new(1, 1 << 20, LEASE);
    let system = cluster.client();
    let file = system.create_new("/f").unwrap();
    file.write_at(0, &[1; 50_000]).unwrap();
    file.sync_data().unwrap();
    file.write_at(10, &[2; 40_000]).unwrap();
    file.sync_data().unwrap();

    let server = cluster.data.remove(0);
    let address = server.address().to_string();
    server.shutdown();
    let path = cluster.folder.path().join("data0");
    cluster.data.push(serve_data(&path, &address, 1 << 20));
    let read = file.read_at(0, 100_000).unwrap();
    assert_eq!(read.len(), 50_000);
    assert!(read[10..40_010].iter().all(|byte| *byte == 2));
    assert!(read[..10]
        .iter()
        .chain(&read[40_010..])
        .all(|byte| *byte == 1));
    file.sync().unwrap();
}

/// Several at once, more of them than are synced at the same time.
#[test]
fn what_sync_all_has_brought_outlives_both_servers() {
    const FILES: u8 = 50;
    let mut cluster = Cluster::new(1, 4 << 20, LEASE);
    let system = cluster.client();
    let name = |number: u8| format!("/f{number}");
    for number in 0..FILES {
        let file = system.create_new(&name(number)).unwrap();
        file.write_at(0, &[number; 40_000]).unwrap();
    }
    system.sync_all().unwrap();

    let server = cluster.data.remove(0);
    let address = server.address().to_string();
    server.shutdown();
    let path = cluster.folder.path().join("data0");
    cluster.data.push(serve_data(&path, &address, 4 << 20));
    cluster.restart_meta();
    let other = cluster.client();
    for number in 0..FILES {
        let read = other.open(&name(number)).unwrap().read_at(0, 50_000);
        assert!(read.unwrap() == [number; 40_000], "{}", name(number));
    }
}

#[test]
fn who_writes_a_file_knows_its_size_and_time() {
    let cluster = Cluster::new(1, 1 << 20, LEASE);
    let (one, two) = (cluster.client(), cluster.client());
    let file = one.create_new("/f").unwrap();
    let before = file.attributes().unwrap();
    file.write_at(0, &[1; 50_000]).unwrap();
    let written = one.attributes_of_written(&before).unwrap();
    assert_eq!((written.size, written.extents), (50_000, 2));
    assert!(written.mtime > before.mtime);
    assert_eq!(two.attributes_of_written(&before), None);
    file.sync().unwrap();
    // What it was told before the commit is not older than that for it.
    let synced = one.attributes_of_written(&before).unwrap();
    assert_eq!((synced.size, synced.mtime), (50_000, written.mtime));
    assert_eq!(two.find("/f").unwrap().mtime, written.mtime);
    let set = SetAttributes {
        mtime: Some(7),
        ..SetAttributes::default()
    };
    assert_eq!(one.set_attributes(before.ino, &set).unwrap().mtime, 7);

    let other = two.open("/f").unwrap();
    other.write_at(50_000, b"more").unwrap();
    assert_eq!(one.attributes_of_written(&before), None);
}

#[test]
fn a_write_without_space_leaves_the_file_as_it_was() {
    let cluster = Cluster::new(1, 1 << 20, LEASE);
    let one = cluster.client();
    let free = one.space().unwrap().free;
    let old = one.create_new("/old").unwrap();
    old.write_at(0, &vec![0xaa; free as usize]).unwrap();
    old.sync().unwrap();
    drop(old);
    one.remove("/old").unwrap();
    drop(one);
    let two = cluster.client();
    eventually("the removed file's space is free", || {
        two.space().unwrap().free == free
    });

    let file = two.create_new("/f").unwrap();
    let bytes = (free + EXTENT_BYTES) as usize;
    file.set_len(bytes as u64).unwrap();
    let too_much = vec![1; bytes];
    assert_eq!(refused(file.write_at(0, &too_much)), Errno::NOSPC);
    file.sync().unwrap();
    let read = file.read_at(0, bytes).unwrap();
    assert!(read == vec![0; bytes], "another file's bytes are seen");
    // Nothing that was taken for it is lost.
    file.write_at(0, &too_much[..free as usize]).unwrap();
    file.sync().unwrap();
}

#[test]
fn a_file_is_synced_after_an_append_without_space() {
    let cluster = Cluster::new(1, 1 << 20, LEASE);
    let one = cluster.client();
    let free = one.space().unwrap().free as usize;
    let file = one.create_new("/f").unwrap();
    file.write_at(0, &[1; 100]).unwrap();
    assert_eq!(refused(file.write_at(100, &vec![2; free])), Errno::NOSPC);
    file.sync().unwrap();
    let two = cluster.client();
    let again = two.open("/f").unwrap();
    assert_eq!(again.read_at(0, free).unwrap(), [1; 100]);
}
