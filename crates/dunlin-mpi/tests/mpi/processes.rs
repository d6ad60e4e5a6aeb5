//! Ranks as processes: the test binary, started again for each of them.

use std::process::{Child, Command, Stdio};

use dunlin_mpi::environment::{DEVICE, RANK, ROOT, SIZE};
use dunlin_mpi::{MpiError, Op, Source, Tag, World};
use rustix::process::{kill_process, Pid, Signal};

/// What a rank does, as an argument of the environment.
const ROLE: &str = "DUNLIN_MPI_TEST_ROLE";

/// The ranks of a job; those that still run are killed at the end.
struct Job(Vec<Child>);

impl Job {
    fn start(size: usize, role: &str, device: &str) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let root = format!("dunlin://{}", port.local_addr().unwrap());
        drop(port);
        let start = |rank: usize| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "processes::a_rank", "--nocapture"])
                .env(RANK, rank.to_string())
                .env(SIZE, size.to_string())
                .env(ROOT, &root)
                .env(DEVICE, device)
                .env(ROLE, role)
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        };
        Self((0..size).map(start).collect())
    }

    fn wait(&mut self, rank: usize) -> bool {
        self.0[rank].wait().unwrap().success()
    }
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
