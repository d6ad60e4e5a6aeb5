//! What a process can do with nothing but what its peer has given it: descriptors and mappings. All of it by a seed.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::fs::{fcntl_add_seals, fcntl_setfl, ftruncate, FallocateFlags, OFlags, SealFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketType};

/// Numbers that follow from a seed.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit.max(1)
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// A word that somebody may take for a count, a length, an offset, a state.
    fn word(&mut self) -> u64 {
        let any = self.next();
        self.of(&[
            0,
            1,
            2,
            63,
            64,
            4096,
            u64::from(u32::MAX),
            1 << 32,
            1 << 63,
            u64::MAX,
            u64::MAX - 7,
            any,
            any & 0xffff,
            any >> 32,
        ])
    }
}

/// A kind of attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    /// Clears O_NONBLOCK of every open file that it shares.
    Flags,
    /// Fills every counter and every socket.
    Fill,
    /// Takes whatever comes, by threads that block.
    Steal,
    /// Seals shared memory.
    Seals,
    /// Cuts, grows and punches shared memory.
    Truncate,
    /// Writes words anywhere in shared memory.
    Scribble,
    /// Fills all shared memory with one byte.
    Erase,
    /// Ends halves of sockets, or both.
    Shutdown,
    /// Says anything on the control sockets, its own and new ones, and reads no answer.
    Control,
}

impl Attack {
    pub(crate) const ALL: [Attack; 9] = [
        Attack::Flags,
        Attack::Fill,
        Attack::Steal,
        Attack::Seals,
        Attack::Truncate,
        Attack::Scribble,
        Attack::Erase,
        Attack::Shutdown,
        Attack::Control,
    ];

    pub(crate) fn run(self, random: &mut Random, peer: u32) {
        let loot = Loot::find();
        match self {
            Attack::Flags => {
                for &file in &loot.files {
                    let _ = fcntl_setfl(borrow(file), OFlags::empty());
                }
            }
            Attack::Fill => loot.fill(),
            Attack::Steal => loot.steal(),
            Attack::Seals => {
                let seals = random.of(&[
                    SealFlags::FUTURE_WRITE,
                    SealFlags::WRITE,
                    SealFlags::SEAL,
                    SealFlags::SHRINK | SealFlags::GROW,
                ]);
                for &file in &loot.memory_files {
                    let _ = fcntl_add_seals(borrow(file), seals);
                }
            }
            Attack::Truncate => loot.truncate(random),
            Attack::Scribble => loot.scribble(random),
            Attack::Erase => loot.erase(random.of(&[0, 0xff, 1])),
            Attack::Shutdown => {
                let how = random.of(&[Shutdown::Read, Shutdown::Write, Shutdown::Both]);
                for &socket in &loot.sockets {
                    let _ = rustix::net::shutdown(borrow(socket), how);
                }
            }
            Attack::Control => loot.control(random, peer),
        }
    }
}

/// What this process has of its peers, and of itself: it makes no difference between the two.
#[derive(Debug, Default)]
struct Loot {
    /// All open files but the standard streams.
    files: Vec<RawFd>,
    counters: Vec<RawFd>,
    sockets: Vec<RawFd>,
    memory_files: Vec<RawFd>,
    /// Shared memory that is mapped here.
    mappings: Vec<Range<u64>>,
}

fn borrow(file: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the number was open a moment ago. Should another thread have closed it since, the call that follows fails
    // or hits another file of this process, which is here to do harm.
    unsafe { BorrowedFd::borrow_raw(file) }
}

impl Loot {
    fn find() -> Self {
        let mut loot = Self::default();
        for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
            let name = entry.file_name();
            let Some(file) = name.to_str().and_then(|name| name.parse::<RawFd>().ok()) else {
                continue;
            };
            let Ok(target) = std::fs::read_link(entry.path()) else {
                continue;
            };
            let target = target.to_string_lossy().into_owned();
            if file <= 2 || target.contains("/proc/") {
                continue;
            }
            loot.files.push(file);
            if target.contains("[eventfd]") {
                loot.counters.push(file);
            } else if target.starts_with("socket:") {
                loot.sockets.push(file);
            } else if target.contains("memfd:") {
                loot.memory_files.push(file);
            }
        }
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        for line in maps.lines().filter(|line| line.contains("memfd:")) {
            let range = line.split_whitespace().next().unwrap();
            let (start, end) = range.split_once('-').unwrap();
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            loot.mappings.push(number(start)..number(end));
        }
        loot
    }

    fn fill(&self) {
        for &file in &self.counters {
            let _ = fcntl_setfl(borrow(file), OFlags::NONBLOCK);
            let _ = rustix::io::write(borrow(file), &(u64::MAX - 1).to_ne_bytes());
            let _ = rustix::io::write(borrow(file), &1u64.to_ne_bytes());
            let _ = fcntl_setfl(borrow(file), OFlags::empty());
        }
        for &socket in &self.sockets {
            for _ in 0..2000 {
                if rustix::net::send(
                    borrow(socket),
                    &[1],
                    SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
                )
                .is_err()
                {
                    break;
                }
            }
        }
    }

    /// The threads stay until the process ends.
    fn steal(&self) {
        for &file in &self.counters {
            let _ = fcntl_setfl(borrow(file), OFlags::empty());
            thread(move || rustix::io::read(borrow(file), &mut [0; 8]).is_ok());
        }
        for &socket in &self.sockets {
            thread(move || {
                let mut bytes = [0; 64];
                let taken = rustix::net::recv(borrow(socket), &mut bytes[..], RecvFlags::empty());
                taken.is_ok_and(|(taken, _)| taken > 0)
            });
        }
    }

    fn truncate(&self, random: &mut Random) {
        for &file in &self.memory_files {
            let file = borrow(file);
            let length = random.of(&[0, 4096, 1 << 20, 1 << 40]);
            let _ = ftruncate(file, length);
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(file, punch, 0, 1 << 30);
        }
    }

    fn scribble(&self, random: &mut Random) {
        let Some(memory) = memory() else { return };
        for _ in 0..4000 {
            if self.mappings.is_empty() {
                return;
            }
            let mapping = &self.mappings[random.below(self.mappings.len() as u64) as usize];
            let bytes = mapping.end - mapping.start;
            // Words of control stand at the beginning of what is mapped.
            let reach = random.of(&[64, 512, 4096, bytes]).min(bytes);
            let at = mapping.start + random.below(reach) / 8 * 8;
            let _ = memory.write_at(&random.word().to_le_bytes(), at);
        }
    }

    fn erase(&self, byte: u8) {
        let Some(memory) = memory() else { return };
        let page = [byte; 4096];
        for mapping in &self.mappings {
            for at in mapping.clone().step_by(page.len()).take(4096) {
                let _ = memory.write_at(&page, at);
            }
        }
    }

    fn control(&self, random: &mut Random, peer: u32) {
        for &socket in &self.sockets {
            for _ in 0..64 {
                let bytes = control_message(random);
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let _ = rustix::net::send(borrow(socket), &bytes, flags);
            }
        }
        for name in listeners(peer).iter().cycle().take(8) {
            let Ok(address) = SocketAddrUnix::new_abstract_name(name) else {
                continue;
            };
            let Ok(session) = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)
            else {
                continue;
            };
            if rustix::net::connect(&session, &address).is_err() {
                continue;
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let mut hello = control_message(random);
            // Whichever version it is.
            hello[..8].copy_from_slice(&[1, 0, 0, 0, 1 + random.below(4) as u8, 0, 0, 0]);
            let _ = rustix::net::send(&session, &hello, flags);
            for _ in 0..64 {
                let _ = rustix::net::send(&session, &control_message(random), flags);
            }
            // It stays open, and nobody reads its answers.
            std::mem::forget(session);
        }
    }
}

/// The memory of this process, which may be written at any address that is mapped.
fn memory() -> Option<File> {
    File::options().write(true).open("/proc/self/mem").ok()
}

/// The abstract names on which a process listens: those of the peer that is attacked, and of nobody else on this host.
fn listeners(process: u32) -> Vec<Vec<u8>> {
    let files = std::fs::read_dir(format!("/proc/{process}/fd"));
    let files = files.into_iter().flatten().flatten();
    let targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    let sockets: Vec<String> = targets
        .filter_map(|target| {
            let inode = target.to_str()?.strip_prefix("socket:[")?;
            Some(inode.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let names = table.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(6);
        let inode = words.next()?;
        let name = words.next()?.strip_prefix('@')?;
        sockets
            .iter()
            .any(|socket| socket == inode)
            .then(|| name.as_bytes().to_vec())
    });
    let mut names: Vec<_> = names.collect();
    names.sort();
    names.dedup();
    names
}

/// A message of the size that control messages have: mostly of a kind that there is, with any numbers in it.
fn control_message(random: &mut Random) -> [u8; 64] {
    let mut bytes = [0; 64];
    for word in bytes.chunks_exact_mut(4) {
        // Queue pairs and keys have small numbers.
        let value = match random.below(2) {
            0 => random.below(64) as u32,
            _ => random.word() as u32,
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes[0] = random.below(12) as u8;
    bytes[1..4].fill(0);
    bytes
}

/// Does something again and again, for as long as it comes to something.
fn thread(mut work: impl FnMut() -> bool + Send + 'static) {
    std::thread::spawn(move || {
        while work() {
            std::thread::sleep(Duration::from_micros(10));
        }
    });
}
