//! The export by NBD, by a small client of its own: what it is told, many requests at once, bytes that are no NBD.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use common::{block, in_memory, options};
use dunlin_volume::nbd::{Export, ExportError, NbdAddress};
use dunlin_volume::server::BlockServer;
use dunlin_volume::{create, Volume, VolumeError, BLOCK_BYTES};

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const ESHUTDOWN: u32 = 108;
const SIZE: u64 = 4 << 20;

/// An export of this process.
struct Exported {
    _servers: Vec<BlockServer>,
    addresses: Vec<String>,
    folder: tempfile::TempDir,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), ExportError>>>,
}

impl Exported {
    fn new() -> Self {
        let (servers, addresses) = in_memory(3);
        create("birds", SIZE, &addresses, &options()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let volume = Volume::open("birds", &addresses, &options()).unwrap();
        let path = folder.path().join("socket");
        let mut export = Export::new(volume, &NbdAddress::Unix(path)).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let thread = std::thread::spawn(move || export.run(|| is_over.load(Ordering::Relaxed)));
        Self {
            _servers: servers,
            addresses,
            folder,
            over,
            thread: Some(thread),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn end(mut self) -> Result<(), ExportError> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// A client in transmission.
struct Client {
    stream: UnixStream,
    next: u64,
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream
}

fn take<const N: usize>(stream: &mut UnixStream) -> [u8; N] {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

impl Client {
    /// By NBD_OPT_GO.
    fn go(path: &Path) -> Self {
        let mut stream = connect(path);
        assert_eq!(&take::<16>(&mut stream), b"NBDMAGICIHAVEOPT");
        assert_eq!(take::<2>(&mut stream), [0, 3]);
        stream.write_all(&3_u32.to_be_bytes()).unwrap();
        stream
            .write_all(&option(7, b"\0\0\0\x05birds\0\0"))
            .unwrap();
        loop {
            let head: [u8; 20] = take(&mut stream);
            let kind = u32::from_be_bytes(head[12..16].try_into().unwrap());
            let length = u32::from_be_bytes(head[16..].try_into().unwrap());
            let mut data = vec![0; length as usize];
            stream.read_exact(&mut data).unwrap();
            match kind {
                1 => return Self { stream, next: 1 },
                3 if data[..2] == [0, 0] => assert_eq!(data[2..10], SIZE.to_be_bytes()),
                3 => assert_eq!(data[2..6], 4096_u32.to_be_bytes()),
                other => panic!("{other}"),
            }
        }
    }

    /// By NBD_OPT_EXPORT_NAME, which older clients speak.
    fn export_name(path: &Path) -> Self {
        let mut stream = connect(path);
        take::<18>(&mut stream);
        stream.write_all(&1_u32.to_be_bytes()).unwrap();
        stream.write_all(&option(1, b"birds")).unwrap();
        let told: [u8; 8 + 2 + 124] = take(&mut stream);
        assert_eq!(told[..8], SIZE.to_be_bytes());
        Self { stream, next: 1 }
    }

    fn send(&mut self, kind: u16, offset: u64, length: u32, bytes: &[u8]) -> u64 {
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend(0_u16.to_be_bytes());
        request.extend(kind.to_be_bytes());
        request.extend(self.next.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(length.to_be_bytes());
        request.extend(bytes);
        self.stream.write_all(&request).unwrap();
        self.next += 1;
        self.next - 1
    }

    fn hear(&mut self) -> (u64, u32) {
        let reply: [u8; 16] = take(&mut self.stream);
        assert_eq!(reply[..4], 0x6744_6698_u32.to_be_bytes());
        let error = u32::from_be_bytes(reply[4..8].try_into().unwrap());
        (u64::from_be_bytes(reply[8..].try_into().unwrap()), error)
    }

    fn ask(&mut self, kind: u16, offset: u64, length: u32, bytes: &[u8]) -> Result<(), u32> {
        let cookie = self.send(kind, offset, length, bytes);
        let (of, error) = self.hear();
        assert_eq!(of, cookie);
        if error == 0 {
            Ok(())
        } else {
            Err(error)
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), u32> {
        self.ask(WRITE, offset, bytes.len() as u32, bytes)
    }

    fn read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, u32> {
        self.ask(READ, offset, length, &[])?;
        let mut bytes = vec![0; length as usize];
        self.stream.read_exact(&mut bytes).unwrap();
        Ok(bytes)
    }
}

#[test]
fn a_volume_is_a_disk() {
    let exported = Exported::new();
    let mut client = Client::go(&exported.path());
    let long: Vec<u8> = (0..200).flat_map(|number| block(number, 1)).collect();
    client.write(8192, &long).unwrap();
    client.ask(FLUSH, 0, 0, &[]).unwrap();
    assert!(client.read(8192, long.len() as u32).unwrap() == long);
    client.ask(TRIM, 8192, 4096, &[]).unwrap();
    client.ask(WRITE_ZEROES, 16384, 8192, &[]).unwrap();
    // Another client sees the same disk.
    let mut other = Client::export_name(&exported.path());
    let read = other.read(8192, 5 * 4096).unwrap();
    assert!(read[..4096] == [0; 4096] && read[8192..4 * 4096] == [0; 8192]);
    assert!(read[4096..8192] == block(1, 1) && read[4 * 4096..] == block(4, 1));
    assert!(exported.end().is_ok());
}

#[test]
fn what_cannot_be_is_an_error_and_the_next_request_is_answered() {
    let exported = Exported::new();
    let mut client = Client::go(&exported.path());
    assert_eq!(client.read(100, 4096).unwrap_err(), EINVAL);
    assert_eq!(client.read(SIZE, 4096).unwrap_err(), EINVAL);
    assert_eq!(client.write(SIZE - 4096, &[0; 8192]).unwrap_err(), ENOSPC);
    assert_eq!(client.write(0, &[1; 512]).unwrap_err(), EINVAL);
    assert_eq!(client.ask(77, 0, 4096, &[]).unwrap_err(), 95);
    assert_eq!(client.ask(TRIM, 0, 0, &[]).unwrap_err(), EINVAL);
    client.write(0, &block(0, 1)).unwrap();
    assert!(client.read(0, 4096).unwrap() == block(0, 1));
    assert!(exported.end().is_ok());
}

#[test]
fn many_requests_of_many_clients_are_answered() {
    let exported = Exported::new();
    let path = exported.path();
    let clients: Vec<_> = (0..4_u64)
        .map(|number| {
            let path = path.clone();
            std::thread::spawn(move || {
                let mut client = Client::go(&path);
                let offset = |nth: u64| (number * 64 + nth) * 4096;
                let asked: Vec<u64> = (0..64)
                    .map(|nth| client.send(WRITE, offset(nth), 4096, &block(nth, number)))
                    .collect();
                let mut heard: Vec<u64> = asked
                    .iter()
                    .map(|_| client.hear())
                    .map(|(of, error)| {
                        assert_eq!(error, 0);
                        of
                    })
                    .collect();
                heard.sort_unstable();
                assert_eq!(heard, asked);
                for nth in 0..64 {
                    assert!(client.read(offset(nth), 4096).unwrap() == block(nth, number));
                }
            })
        })
        .collect();
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
    assert!(exported.end().is_ok());
}

#[test]
fn bytes_that_are_no_nbd_end_their_connection_alone() {
    let exported = Exported::new();
    let path = exported.path();
    let mut good = Client::go(&path);
    good.write(0, &block(0, 1)).unwrap();
    let seed = std::env::var("DUNLIN_VOLUME_NBD_SEED").map_or(1, |text| text.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..60 {
        let mut stream = match round % 3 {
            0 => connect(&path),
            1 => {
                let mut stream = connect(&path);
                stream.write_all(&3_u32.to_be_bytes()).unwrap();
                stream.write_all(b"IHAVEOPT").unwrap();
                stream
            }
            _ => Client::go(&path).stream,
        };
        let mut bytes: Vec<u8> = (0..random.usize(1..200)).map(|_| random.u8(..)).collect();
        if round % 2 == 0 && bytes.len() > 8 {
            // A request that is one, as far as it goes.
            bytes[..8].copy_from_slice(&[0x25, 0x60, 0x95, 0x13, 0, 0, 0, random.u8(..8)]);
        }
        match stream.write_all(&bytes) {
            Ok(()) => {}
            Err(error) => assert!(
                matches!(
                    error.kind(),
                    ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
                ),
                "{error}"
            ),
        }
        if random.bool() {
            good.write(4096, &block(1, round)).unwrap();
        }
    }
    // One that begins a long write and does not go on keeps nobody waiting.
    let mut slow = Client::go(&path);
    slow.send(WRITE, 0, 32 << 20, &[0; 100]);
    assert!(good.read(0, 4096).unwrap()[4..8] == block(0, 1)[4..8]);
    assert!(exported.end().is_ok());
}

#[test]
fn an_export_whose_volume_is_opened_elsewhere_ends() {
    let mut exported = Exported::new();
    let mut client = Client::go(&exported.path());
    client.write(0, &block(0, 1)).unwrap();
    let mut other = Volume::open("birds", &exported.addresses, &options()).unwrap();
    assert_eq!(client.write(0, &block(0, 2)).unwrap_err(), ESHUTDOWN);
    let ended = exported.thread.take().unwrap().join().unwrap();
    assert!(matches!(
        ended,
        Err(ExportError::Volume(VolumeError::Replaced))
    ));
    assert!(other.read_at(0, BLOCK_BYTES).unwrap() == block(0, 1));
}

#[test]
fn a_socket_that_was_left_behind_is_replaced_and_one_in_use_is_not() {
    let (_servers, addresses) = in_memory(1);
    create("birds", SIZE, &addresses, &options()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let address = NbdAddress::Unix(path.clone());
    // Its listener is gone, and the name is there still.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let open = || Volume::open("birds", &addresses, &options()).unwrap();
    let export = Export::new(open(), &address).unwrap();
    let error = Export::new(open(), &address).unwrap_err();
    assert!(matches!(error, ExportError::Listen { .. }), "{error}");
    drop(export);
    assert!(!path.exists());
}

/// An ordinary file refuses connections as a socket does that nobody listens on, and is not to be removed for that.
#[test]
fn a_file_that_is_no_socket_stays() {
    let (_servers, addresses) = in_memory(3);
    create("birds", SIZE, &addresses, &options()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("letters");
    std::fs::write(&path, "mine").unwrap();
    let volume = Volume::open("birds", &addresses, &options()).unwrap();
    let error = Export::new(volume, &NbdAddress::Unix(path.clone())).unwrap_err();
    assert!(matches!(error, ExportError::Listen { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}
