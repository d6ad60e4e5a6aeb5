//! A peer that abuses every descriptor that it has: others go on, nobody waits for it, and no wake-up of theirs is
//! lost.
//!
//! The peer is this binary, started again. It connects like any other, and then does to its descriptors what a process
//! can do: it clears their O_NONBLOCK, fills them, reads what was meant for others, shuts them down, closes them, sends
//! others by them. Sleepers here sleep for longer than the test may take: a wake-up that is lost ends it, as does a
//! thread that blocks.
#![allow(missing_docs)]

mod common;

use std::io::{IoSlice, Write};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::Duration;

use common::addresses::{read_address, write_address};
use common::process::{listen, role, say, Other};
use common::Side;
use dunlin_shm::{ShmCompletionChannel, ShmConfig, ShmDevice, ShmSharedReceiveQueue};
use dunlin_verbs::{
    Completion, CompletionChannel, CompletionQueue, Destination, Device, EndpointAddress, Notify,
    Operation, Payload, QueuePair, QueuePairConfig, ReceiveQueue, SendFlags, SendRequest,
    Transport,
};
use rustix::fs::{fcntl_setfl, OFlags};
use rustix::net::{
    sendmsg, shutdown, SendAncillaryBuffer, SendAncillaryMessage, SendFlags as SocketFlags,
    Shutdown,
};
use rustix::process::{kill_process, Signal};

/// The whole of a test takes less, on any machine.
const BOUND: Duration = Duration::from_secs(60);
/// Longer than [`BOUND`]: nobody is woken by the time.
const ASLEEP: Duration = Duration::from_secs(600);
const ROUNDS: u64 = 100;
const RECEIVE_BYTES: usize = 128;

/// Runs `test`, which fails when it hangs.
fn within_bound(test: impl FnOnce() + Send + 'static) {
    let (done, result) = channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match result.recv_timeout(BOUND) {
        Ok(()) => {}
        Err(RecvTimeoutError::Timeout) => panic!("it hangs, or a wake-up was lost"),
        Err(RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().unwrap_err())
        }
    }
}

/// A side whose arrivals raise events of `channel`.
struct Sleeper {
    side: Side,
    channel: ShmCompletionChannel,
    peer: EndpointAddress,
}

impl Sleeper {
    /// Makes a side, tells its address to the peer by `exchange` and connects to the one that this answers.
    fn connect(
        device: &ShmDevice,
        channel: &ShmCompletionChannel,
        transport: Transport,
        exchange: impl FnOnce(String) -> String,
    ) -> Self {
        let mut side = Side::on(device, transport);
        side.receives = device.create_completion_queue(256, Some(channel)).unwrap();
        let config = QueuePairConfig {
            transport,
            send_completions: &side.sends,
            receive_completions: &side.receives,
            send_requests: 64,
            receive_queue: ReceiveQueue::<ShmSharedReceiveQueue>::Own(64),
            segments: 1,
            inline_bytes: 64,
        };
        side.pair = device.create_queue_pair(&side.domain, &config).unwrap();
        let line = write_address(&side.pair.address(), side.remote(0));
        let (peer, _) = read_address(&exchange(line));
        side.connect(&peer);
        for id in 0..32 {
            side.receive(id, id as usize * RECEIVE_BYTES, RECEIVE_BYTES);
        }
        Self {
            side,
            channel: channel.clone(),
            peer,
        }
    }

    fn arm(&mut self) {
        self.side.receives.request_notify(Notify::Next).unwrap();
    }

    /// Sends a message, without waiting for anything.
    fn send(&mut self) {
        let domain = &self.side.domain;
        let handle = self.side.device.create_address_handle(domain, &self.peer);
        let handle = handle.unwrap();
        let send = Operation::Send { immediate: None };
        let mut request = SendRequest::new(1, send, Payload::Inline(b"hi"), SendFlags::SIGNALED);
        if self.side.pair.transport() == Transport::UnreliableDatagram {
            request.destination = Some(Destination {
                handle: &handle,
                queue_pair: self.peer.queue_pair,
                queue_key: self.peer.queue_key,
            });
        }
        // Full, or in error: the hostile one takes nothing, or is gone.
        let _ = self.side.pair.post_send(&[request]);
        let _ = self.side.sends.poll(&mut [Completion::EMPTY; 8]);
    }

    /// Takes a message if one is there.
    fn take(&mut self) -> bool {
        let mut one = [Completion::EMPTY];
        if self.side.receives.poll(&mut one).unwrap() == 0 || !one[0].is_success() {
            return false;
        }
        let id = one[0].id;
        self.side
            .receive(id, id as usize * RECEIVE_BYTES, RECEIVE_BYTES);
        true
    }

    /// Sleeps until a message comes; `meanwhile` is called when the queue is armed, before it sleeps.
    fn sleep_until_message(&mut self, meanwhile: impl FnOnce()) {
        self.arm();
        if self.take() {
            return;
        }
        meanwhile();
        while !self.take() {
            assert!(self.channel.wait(ASLEEP).unwrap(), "woken by the time");
            if self.take() {
                return;
            }
            self.arm();
        }
    }
}

/// In another process: connected to the first.
fn other_side(transport: Transport) -> Sleeper {
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let channel = device.create_completion_channel().unwrap();
    Sleeper::connect(&device, &channel, transport, |line| {
        say(&line);
        listen().unwrap()
    })
}

/// A good peer: answers each message, asleep in between.
fn good(transport: Transport) {
    let mut sleeper = other_side(transport);
    while let Some(line) = listen() {
        match line.as_str() {
            "send" => sleeper.send(),
            "sleep" => sleeper.sleep_until_message(|| say("asleep")),
            _ => return,
        }
        say("done");
    }
}

/// A peer that is let in, and then abuses all that it has until the first process ends it.
fn hostile(transport: Transport, how: &str) {
    // What was open before is not of this connection: a pipe of whoever started the tests, which two of us would fill.
    let inherited = descriptors();
    let mut sleeper = other_side(transport);
    sleeper.send();
    while listen().is_some_and(|line| line != "attack") {
        sleeper.send();
    }
    let how = how.to_owned();
    std::thread::spawn(move || loop {
        // Who sends to us finds that we are to be woken.
        sleeper.arm();
        std::thread::sleep(Duration::from_millis(1));
    });
    let attack_all = || {
        let own = descriptors().into_iter().filter(|n| !inherited.contains(n));
        own.for_each(|number| attack(number, &how));
    };
    if how == "descriptors" {
        // They are to be received when we have closed ours.
        while_stopped(attack_all);
    } else {
        attack_all();
    }
    say("attacked");
    listen();
    std::process::exit(0);
}

/// Longest that a close is waited for which should not wait.
const LINGERS: Duration = Duration::from_millis(100);
/// Longest that the first process stands still.
const STOPPED: Duration = Duration::from_secs(10);

/// Does something while the first process stands still, which is not for ever, whatever becomes of this one's thread.
fn while_stopped(f: impl FnOnce()) {
    let first = rustix::process::getppid().unwrap();
    kill_process(first, Signal::STOP).unwrap();
    std::thread::spawn(move || {
        std::thread::sleep(STOPPED);
        let _ = kill_process(first, Signal::CONT);
    });
    let stat = format!("/proc/{}/stat", first.as_raw_nonzero());
    common::wait(|| {
        let stat = std::fs::read_to_string(&stat).unwrap();
        let state = stat.rsplit(')').next();
        state.is_some_and(|state| state.starts_with(" T"))
    });
    f();
    kill_process(first, Signal::CONT).unwrap();
}

/// What this process has open, but for what it hears and says by.
fn descriptors() -> Vec<RawFd> {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let numbers = numbers.map(|name| name.parse().unwrap());
    numbers.filter(|&number| number > 2).collect()
}

/// One of our sockets to another device's control thread, or of theirs to ours.
fn is_session(file: BorrowedFd<'_>) -> bool {
    let named = |address: Option<rustix::net::SocketAddrAny>| {
        let address = address.map(|address| format!("{address:?}"));
        address.is_some_and(|text| text.contains("dunlin-shm"))
    };
    named(rustix::net::getsockname(file).ok())
        || named(rustix::net::getpeername(file).ok().flatten())
}

fn attack(number: RawFd, how: &str) {
    // SAFETY: nobody closes it: the process ends while all is open.
    let file: BorrowedFd<'static> = unsafe { BorrowedFd::borrow_raw(number) };
    if is_session(file) && how != "descriptors" {
        // Who closes its session is gone, and can do no more.
        return;
    }
    let kind = std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap_or_default();
    let kind = kind.to_string_lossy().into_owned();
    if !kind.starts_with("socket:") && !kind.contains("eventfd") && !kind.starts_with("pipe:") {
        return;
    }
    let blocking = || fcntl_setfl(file, OFlags::empty());
    let most = 0xffff_ffff_ffff_fffe_u64.to_ne_bytes();
    match how {
        "fill" => {
            let _ = fcntl_setfl(file, OFlags::NONBLOCK);
            while rustix::io::write(file, &most).is_ok() {}
            let _ = blocking();
            std::thread::spawn(move || while rustix::io::write(file, &most).is_ok() {});
        }
        "steal" => {
            let _ = blocking();
            for _ in 0..2 {
                std::thread::spawn(move || while rustix::io::read(file, &mut [0; 8]).is_ok() {});
            }
        }
        "race" => {
            let _ = blocking();
            let one = 1u64.to_ne_bytes();
            std::thread::spawn(move || while rustix::io::write(file, &one).is_ok() {});
            std::thread::spawn(move || while rustix::io::read(file, &mut [0; 8]).is_ok() {});
        }
        "shutdown" => {
            let _ = shutdown(file, Shutdown::Both);
        }
        "close" => {
            let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
            // SAFETY: as above; it stays open, but is another file.
            let mut file = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
            let _ = rustix::io::dup2(&null, &mut file);
        }
        "descriptors" => send_lingering(file),
        other => panic!("{other}"),
    }
}

/// Sends a descriptor whose last holder waits for an hour when it closes it: a TCP connection with bytes that nobody
/// will read.
fn send_lingering(by: BorrowedFd<'_>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let unread = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 1 << 16]).is_ok() {}
    let hour = Some(Duration::from_secs(3600));
    rustix::net::sockopt::set_socket_linger(&stream, hour).unwrap();
    let files = [stream.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    let bytes = [IoSlice::new(&[0; 64])];
    let flags = SocketFlags::DONTWAIT | SocketFlags::NOSIGNAL;
    let sent = sendmsg(by, &bytes, &mut control, flags);
    // Nobody reads it for as long as we live.
    std::mem::forget((listener, unread));
    if sent.is_err() {
        // We are the last holder, and would wait ourselves.
        std::mem::forget(stream);
        return;
    }
    // Before the first process goes on, unless it is ours again to wait for: who reads at the other end may be this
    // process, and have closed it.
    let closing = std::thread::spawn(move || drop(stream));
    let began = std::time::Instant::now();
    while !closing.is_finished() && began.elapsed() < LINGERS {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Our side of the connection to a peer in another process.
fn meet(
    other: &mut Other,
    device: &ShmDevice,
    channel: &ShmCompletionChannel,
    transport: Transport,
) -> Sleeper {
    Sleeper::connect(device, channel, transport, |line| {
        let theirs = other.hear();
        other.say(&line);
        theirs
    })
}

/// Both ways with a good peer, each side asleep when the message comes.
fn exchange(good: &mut Other, sleeper: &mut Sleeper) {
    sleeper.sleep_until_message(|| good.say("send"));
    assert_eq!(good.hear(), "done");
    good.say("sleep");
    assert_eq!(good.hear(), "asleep");
    sleeper.send();
    assert_eq!(good.hear(), "done");
}

fn go_on_beside(test: &'static str, how: &'static str, transport: Transport) {
    match role() {
        None if how == "descriptors" => within_bound(move || {
            // What was sent stays open until its closer has waited for an hour, and blocks whoever is forked meanwhile
            // and closes it as the last: other tests start processes.
            let mut first = Other::start(test, "first", "");
            assert_eq!(first.hear(), "passed");
        }),
        None => within_bound(move || serve_beside(test, transport)),
        Some((role, _)) => match role.as_str() {
            "good" => good(transport),
            "first" => {
                serve_beside(test, transport);
                say("passed");
            }
            _ => hostile(transport, how),
        },
    }
}

/// A good peer gets what it is sent while a hostile one is at work, and so do those who come afterwards.
fn serve_beside(test: &'static str, transport: Transport) {
    let device = ShmDevice::open(ShmConfig::default()).unwrap();
    let channel = device.create_completion_channel().unwrap();
    // All are started before anything is sent that a forked process would have.
    let [mut good, mut bad, mut late, mut last] =
        ["good", "hostile", "good", "good"].map(|role| Other::start(test, role, ""));
    let mut to_good = meet(&mut good, &device, &channel, transport);
    let mut to_bad = meet(&mut bad, &device, &channel, transport);
    exchange(&mut good, &mut to_good);
    // A datagram to who is not ready is lost.
    common::wait(|| {
        bad.say("again");
        to_bad.send();
        to_bad.take()
    });
    bad.say("attack");
    assert_eq!(bad.hear(), "attacked");
    for _ in 0..ROUNDS {
        to_bad.send();
        to_bad.arm();
        channel.wake();
        exchange(&mut good, &mut to_good);
        to_bad.take();
    }
    // The control thread serves, also when the hostile one is dead.
    let mut to_late = meet(&mut late, &device, &channel, transport);
    exchange(&mut late, &mut to_late);
    bad.kill();
    exchange(&mut good, &mut to_good);
    let mut to_last = meet(&mut last, &device, &channel, transport);
    exchange(&mut last, &mut to_last);
}

macro_rules! hostile_tests {
    ($($name:ident: $how:literal, $transport:ident;)*) => {$(
        #[test]
        fn $name() {
            go_on_beside(stringify!($name), $how, Transport::$transport);
        }
    )*};
}

hostile_tests! {
    fills_what_it_was_sent: "fill", ReliableConnection;
    steals_from_what_it_was_sent: "steal", ReliableConnection;
    races_with_the_sleeper: "race", ReliableConnection;
    shuts_down_what_it_was_sent: "shutdown", ReliableConnection;
    closes_what_it_was_sent: "close", ReliableConnection;
    sends_descriptors_that_block_their_closer: "descriptors", ReliableConnection;
    datagrams_fills_what_it_was_sent: "fill", UnreliableDatagram;
    datagrams_steals_from_what_it_was_sent: "steal", UnreliableDatagram;
    datagrams_races_with_the_sleeper: "race", UnreliableDatagram;
    datagrams_shuts_down_what_it_was_sent: "shutdown", UnreliableDatagram;
    datagrams_sends_descriptors_that_block_their_closer: "descriptors", UnreliableDatagram;
}
