//! Ranks as processes: the test binary, started again for each of them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use dunlin_mpi::environment::{DEVICE, RANK, ROOT, SIZE};
use dunlin_mpi::{MpiError, Op, Rendezvous, Settings, Source, Tag, World};
use rustix::process::{kill_process, Pid, Signal};

/// What a rank does, as an argument of the environment.
const ROLE: &str = "DUNLIN_MPI_TEST_ROLE";

/// The ranks of a job; those that still run are killed at the end.
struct Job(Vec<Child>);

impl Job {
    fn start(size: usize, role: &str, device: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let root = format!("dunlin://{}", port.local_addr().unwrap());
        drop(port);
        let start = |rank| start(rank, size, &root, role, device);
        Self((0..size).map(start).collect())
    }

    fn wait(&mut self, rank: usize) -> bool {
        self.0[rank].wait().unwrap().success()
    }
}

/// Starts a rank of a job.
fn start(rank: usize, size: usize, root: &str, role: &str, device: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::a_rank", "--nocapture"])
        .env(RANK, rank.to_string())
        .env(SIZE, size.to_string())
        .env(ROOT, root)
        .env(DEVICE, device)
        .env(ROLE, role)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

impl Drop for Job {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Those that have ended are gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Not a test: the main function of a rank.
#[test]
fn a_rank() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let mut world = World::from_env().unwrap();
    match &role[..] {
        "sum" => {
            let mut sum = [world.rank() as u64 + 1];
            world.allreduce(&mut sum, Op::Sum).unwrap();
            let size = world.size() as u64;
            assert_eq!(sum, [size * (size + 1) / 2]);
            world.finalize().unwrap();
        }
        "die" => {
            // A loss ends every call that waits, so all others must be out of theirs.
            if world.rank() == 2 {
                for _ in 1..world.size() {
                    world.receive(Source::Any, 9, &mut []).unwrap();
                }
                let own = Pid::from_raw(std::process::id() as i32).unwrap();
                kill_process(own, Signal::KILL).unwrap();
            }
            world.send(2, 9, &[]).unwrap();
            // One rank waits for the dead one, another for any message, the last for one that lives.
            let ended = match world.rank() {
                0 => world.receive(2, 1, &mut [0]),
                1 => world.receive(Source::Any, Tag::Any, &mut [0]),
                _ => world.receive(0, 1, &mut [0]),
            };
            let error = ended.unwrap_err();
            assert!(
                matches!(error, MpiError::RankLost { rank: 2, .. }),
                "{error}"
            );
            // The same from collectives.
            let error = world.barrier().unwrap_err();
            assert!(
                matches!(error, MpiError::RankLost { rank: 2, .. }),
                "{error}"
            );
        }
        other => panic!("no role {other}"),
    }
}

#[test]
fn processes_add_up() {
    let mut job = Job::start(4, "sum", "shm");
    for rank in 0..4 {
        assert!(job.wait(rank), "rank {rank}");
    }
}

#[test]
fn a_killed_rank_is_named_by_all_others() {
    for device in ["shm", "roce"] {
        let mut job = Job::start(4, "die", device);
        for rank in [0, 1, 3] {
            assert!(job.wait(rank), "rank {rank} over {device}");
        }
        assert!(!job.wait(2));
    }
}

/// Rank 1 reaches rank 0 through a relay, which stops its process while rank 0 has its request: so its device is silent
/// when rank 0 asks it about the queue pairs.
#[test]
fn a_rank_whose_device_was_silent_joins_when_it_answers() {
    let settings = Settings::default().device("shm");
    let root = Rendezvous::bind("dunlin://127.0.0.1:0", 2, &settings).unwrap();
    let behind = root.address().to_string();
    let behind = behind.strip_prefix("dunlin://").unwrap().to_owned();
    let front = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("dunlin://{}", front.local_addr().unwrap());
    let mut job = Job(vec![start(1, 2, &address, "sum", "shm")]);
    let process = Pid::from_raw(job.0[0].id() as i32).unwrap();
    // Not a scoped thread: when the rank does not come again, it waits for ever.
    std::thread::spawn(move || {
        let connect = || {
            let (near, _) = front.accept().unwrap();
            (near, TcpStream::connect(&behind).unwrap())
        };
        let (near, far) = connect();
        // The two hellos.
        pass_on(&near, &far);
        pass_on(&far, &near);
        // The request is there before the process stops.
        let request = take(&near);
        kill_process(process, Signal::STOP).unwrap();
        (&far).write_all(&request).unwrap();
        let refusal = take(&far);
        kill_process(process, Signal::CONT).unwrap();
        (&near).write_all(&refusal).unwrap();
        drop(near);
        let (near, far) = connect();
        for (from, to) in [(&near, &far), (&far, &near)].into_iter().cycle().take(4) {
            pass_on(from, to);
        }
    });
    let mut world = root.join().unwrap();
    let mut sum = [1_u64];
    world.allreduce(&mut sum, Op::Sum).unwrap();
    assert_eq!(sum, [3]);
    world.finalize().unwrap();
    assert!(job.wait(0));
}

/// Takes a frame of a handshake, which is sent by one write.
fn take(mut from: &TcpStream) -> Vec<u8> {
    let mut frame = vec![0; 1 << 16];
    let length = from.read(&mut frame).unwrap();
    frame.truncate(length);
    frame
}

fn pass_on(from: &TcpStream, mut to: &TcpStream) {
    to.write_all(&take(from)).unwrap();
}
