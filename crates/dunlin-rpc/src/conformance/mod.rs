//! The conformance suite of RPC: the behaviour of every preset, written once and run in every world.
//!
//! A [`World`] is a server and its clients: on this machine over a device ([`Loopback`]), or on hosts of a simulated
//! cluster. A behaviour is a function over a [`Stage`], which is a world and a preset;
//! [`rpc_conformance!`](crate::rpc_conformance) makes each a test for each preset, so that the test runner prints what
//! held where. What a world cannot do (block in a call on a simulated thread, lose packets of shared memory) prints
//! *skipped* with the reason.

mod calls;
mod errors;
pub mod hostile;
mod later;
mod lifecycle;
mod local;
mod loss;
mod many;

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::time::Duration;

use dunlin_verbs::thread;

use crate::{Client, ClientBuilder, LocalServer, Pipeline, Preset, RunningServer, Server};
use crate::{Grouping, HandlerId, ServerBuilder};

pub use calls::{
    payloads_of_all_sizes_come_back, requests_filled_in_place_arrive,
    requests_written_where_they_leave_from_arrive,
};
pub use errors::{
    handlers_may_fail_panic_or_be_missing, messages_over_the_limits_are_errors,
    one_sided_operations_work_or_are_refused,
};
pub use hostile::a_peer_without_manners_harms_itself_alone;
pub use later::{
    async_handlers_wait_together, deferred_handlers_answer_in_any_order,
    handlers_hear_of_callers_that_give_up, tasks_sleep_on_pipelines,
};
pub use lifecycle::{
    a_client_finds_its_server_again, a_deadline_ends_the_wait_and_not_the_connection,
    a_shutdown_answers_what_was_accepted, closing_ends_calls_that_are_out, connections_come_and_go,
    dropping_a_future_cancels_its_call_alone, idle_threads_sleep_and_are_woken,
};
pub use local::tasks_of_one_thread_have_their_own_answers;
pub use loss::{each_call_is_executed_once_or_reported, nothing_is_lost_on_a_good_network};
pub use many::{
    batches_give_each_call_its_own_answer, futures_of_many_tasks_end, pipelines_are_awaited,
    pipelines_keep_calls_out, slow_handlers_hold_up_nobody, threads_share_a_client,
};

/// Sends back what it gets.
pub const ECHO: HandlerId = 1;

/// A server in its world.
#[derive(Debug)]
pub enum Serving {
    /// With a port.
    Running(Box<RunningServer>),
    /// With a local acceptor.
    Local(LocalServer),
}

impl Serving {
    /// Number of requests taken so far.
    pub fn requests(&self) -> u64 {
        match self {
            Self::Running(server) => server.statistics().requests,
            Self::Local(server) => server.statistics().requests,
        }
    }

    /// Number of connections at present.
    pub fn connections(&self) -> usize {
        match self {
            Self::Running(server) => server.connections(),
            Self::Local(server) => server.connections(),
        }
    }
}

/// What a network does to packets between client and server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weather {
    /// Fraction of packets that are lost.
    pub lost: f64,
    /// Fraction that is duplicated.
    pub twice: f64,
    /// Fraction that is delayed by up to 200 µs, and may be overtaken.
    pub late: f64,
}

/// A job for a thread of the client.
pub type Job<'a> = Box<dyn FnOnce() + Send + 'a>;

/// The environment of a server and its clients.
pub trait World {
    /// The name, for people.
    fn name(&self) -> String;

    /// Why behaviours that need a port, or block a test's own thread in calls, cannot be tested; `None` if they can.
    fn is_not_real(&self) -> Option<&'static str> {
        None
    }

    /// Starts a server, at the address of the earlier server `again` if given.
    fn serve(&self, server: ServerBuilder, again: Option<&Serving>) -> Serving;

    /// The device of a preset's queue pairs, if servers are given one by name: memory that a server grants is on one
    /// device.
    fn device_of(&self, preset: Preset) -> Option<String> {
        let _ = preset;
        None
    }

    /// Connects a client to the server.
    fn connect(&self, client: ClientBuilder, server: &Serving) -> Client;

    /// Drops a client, in a place where that may wait for its peers.
    fn part(&self, client: Client) {
        drop(client);
    }

    /// Runs each job on a thread of its own at the client, and waits for all of them.
    fn run(&self, jobs: Vec<Job<'static>>);

    /// Lets time pass until `holds`, for at most 30 s.
    fn wait_until(&self, what: &str, holds: &dyn Fn() -> bool) {
        eventually(what, holds);
    }

    /// Returns the job of a hostile peer of a server, for a thread of the client: made by [`hostile::peer`], over the
    /// world's own device.
    ///
    /// # Errors
    /// If there is none: the reason.
    fn hostile(&self, server: &Serving, preset: Preset, seed: u64)
        -> Result<Job<'static>, Skipped>;

    /// Whether the device reports to a server that the queue pair of a datagram client is gone.
    fn hears_of_gone_datagrams(&self) -> bool {
        false
    }

    /// Sets the weather. Returns `false` if the world has none.
    fn set_weather(&self, weather: Option<Weather>) -> bool {
        let _ = weather;
        false
    }
}

/// Why a behaviour was not tested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped(pub String);

/// The result of a behaviour; a failure is a panic.
pub type Outcome = Result<(), Skipped>;

/// A world and a preset.
pub struct Stage<'a> {
    /// The world.
    pub world: &'a dyn World,
    /// The preset of its clients.
    pub preset: Preset,
}

impl std::fmt::Debug for Stage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.preset, self.world.name())
    }
}

impl Stage<'_> {
    /// Checks that the world is real, for behaviours with executors, ports or calls of the test's own thread.
    ///
    /// # Errors
    /// If it is not: the reason.
    pub fn needs_a_real_world(&self) -> Outcome {
        match self.world.is_not_real() {
            Some(why) => Err(Skipped(why.to_owned())),
            None => Ok(()),
        }
    }

    fn builder(&self) -> ClientBuilder {
        Client::builder().preset(self.preset).lanes(4)
    }

    fn server(&self) -> ServerBuilder {
        // So that turns change even with two clients.
        let grouping = Grouping {
            clients: 1,
            ..Grouping::default()
        };
        Server::unbound()
            .grouping(grouping)
            .handle(ECHO, |request, reply| reply.write(request.payload()))
    }

    fn serve(&self, server: ServerBuilder) -> Serving {
        self.world.serve(server, None)
    }

    fn client(&self, server: &Serving) -> Visitor<'_> {
        self.client_of(self.builder(), server)
    }

    fn client_of(&self, builder: ClientBuilder, server: &Serving) -> Visitor<'_> {
        Visitor {
            client: Some(self.world.connect(builder, server)),
            world: self.world,
        }
    }

    /// Runs one job on a thread of the client, with the client, which is dropped afterwards.
    fn with_client(&self, client: Visitor<'_>, job: impl FnOnce(&Client) + Send + 'static) {
        let shared = Client::clone(&client);
        self.world.run(vec![Box::new(move || job(&shared))]);
    }

    /// Runs one job with a pipeline on a thread of the client.
    fn with_pipeline(&self, client: &Client, job: impl FnOnce(&mut Pipeline) + Send + 'static) {
        let mut pipeline = client.pipeline().expect("a lane");
        self.world.run(vec![Box::new(move || job(&mut pipeline))]);
    }
}

/// A client that is dropped in the way its world requires.
struct Visitor<'a> {
    client: Option<Client>,
    world: &'a dyn World,
}

impl std::ops::Deref for Visitor<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client.as_ref().expect("it has not left")
    }
}

impl Drop for Visitor<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            // After a failure the world may not go on.
            if !std::thread::panicking() {
                self.world.part(client);
            }
        }
    }
}

/// Makes one call through a pipeline without other outstanding calls.
fn call(
    pipeline: &mut Pipeline,
    handler: HandlerId,
    payload: &[u8],
) -> Result<Vec<u8>, crate::CallError> {
    while !pipeline.submit(handler, payload, 7)? {
        pipeline.poll(|_, _| panic!("no call is out"))?;
        dunlin_verbs::thread::idle(Duration::from_micros(5), true);
    }
    let mut ended = None;
    while pipeline.outstanding() > 0 {
        pipeline.wait(|tag, answer| {
            assert_eq!(tag, 7);
            assert!(ended.replace(answer.map(<[u8]>::to_vec)).is_none());
        })?;
    }
    ended.expect("no call is out, so it has ended")
}

/// Opens a gate at which handlers wait, also if an assertion fails: a server waits for its workers.
struct Opener(Arc<AtomicBool>);

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Bytes that differ by seed and position.
fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// Waits until `holds`, for at most 30 s of the calling thread's time.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = thread::now();
    while !holds() {
        let waited = thread::now().duration_since(started);
        assert!(waited.as_secs() < 30, "not within 30 s: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Server and clients in this process, over a device of this machine and the port of the bootstrap.
#[derive(Clone, Copy, Debug)]
pub struct Loopback {
    /// The device by name or kind; the environment variable `DUNLIN_CONFORMANCE_DEVICE` overrides it.
    pub device: &'static str,
}

impl Loopback {
    fn device(&self) -> String {
        std::env::var("DUNLIN_CONFORMANCE_DEVICE").unwrap_or_else(|_| self.device.to_owned())
    }
}

impl World for Loopback {
    fn name(&self) -> String {
        self.device()
    }

    fn serve(&self, server: ServerBuilder, again: Option<&Serving>) -> Serving {
        let address = match again {
            Some(Serving::Running(server)) => server.address().to_string(),
            _ => an_address_of_its_own(),
        };
        let server = match server.has_device() {
            true => server,
            false => server.device(self.device()),
        };
        Serving::Running(Box::new(server.serve_at(&address).expect("a server")))
    }

    fn device_of(&self, preset: Preset) -> Option<String> {
        Some(crate::devices::Kinds::of(preset).name(&self.device()))
    }

    fn connect(&self, client: ClientBuilder, server: &Serving) -> Client {
        let Serving::Running(server) = server else {
            unreachable!("this world's servers have ports");
        };
        let client = client.device(self.device());
        client
            .connect(&server.address().to_string())
            .expect("a client")
    }

    fn run(&self, jobs: Vec<Job<'static>>) {
        std::thread::scope(|scope| {
            for job in jobs {
                scope.spawn(job);
            }
        });
    }

    fn hostile(
        &self,
        server: &Serving,
        preset: Preset,
        seed: u64,
    ) -> Result<Job<'static>, Skipped> {
        hostile::over(&self.device(), server, preset, seed)
    }

    fn hears_of_gone_datagrams(&self) -> bool {
        self.device() == "shm"
    }
}

/// A loopback address that no other test uses: on a common one a port that a server releases may be another test's a
/// moment later, and clients looking for their server would find that one.
fn an_address_of_its_own() -> String {
    static USED: AtomicU32 = AtomicU32::new(0);
    let used = USED.fetch_add(1, Ordering::Relaxed);
    let part = |number: u32| 1 + number % 250;
    let process = part(std::process::id());
    format!(
        "dunlin://127.{process}.{}.{}:0",
        part(used / 250),
        part(used)
    )
}

/// A world whose clients leave all answers to their dispatcher (FLOCK §4.3).
#[derive(Clone, Copy, Debug)]
pub struct Dispatched<W>(pub W);

impl<W: World> World for Dispatched<W> {
    fn name(&self) -> String {
        format!("{}, with a dispatcher", self.0.name())
    }

    fn is_not_real(&self) -> Option<&'static str> {
        self.0.is_not_real()
    }

    fn serve(&self, server: ServerBuilder, again: Option<&Serving>) -> Serving {
        self.0.serve(server, again)
    }

    fn device_of(&self, preset: Preset) -> Option<String> {
        self.0.device_of(preset)
    }

    fn connect(&self, client: ClientBuilder, server: &Serving) -> Client {
        self.0.connect(client.dispatched(true), server)
    }

    fn part(&self, client: Client) {
        self.0.part(client);
    }

    fn run(&self, jobs: Vec<Job<'static>>) {
        self.0.run(jobs);
    }

    fn wait_until(&self, what: &str, holds: &dyn Fn() -> bool) {
        self.0.wait_until(what, holds);
    }

    fn hostile(
        &self,
        server: &Serving,
        preset: Preset,
        seed: u64,
    ) -> Result<Job<'static>, Skipped> {
        self.0.hostile(server, preset, seed)
    }

    fn hears_of_gone_datagrams(&self) -> bool {
        self.0.hears_of_gone_datagrams()
    }

    fn set_weather(&self, weather: Option<Weather>) -> bool {
        self.0.set_weather(weather)
    }
}

/// Runs one behaviour and prints when it was skipped.
///
/// # Panics
/// If the preset behaves otherwise.
pub fn run(world: &dyn World, preset: Preset, name: &str, behaviour: fn(&Stage<'_>) -> Outcome) {
    let stage = Stage { world, preset };
    if let Err(Skipped(why)) = behaviour(&stage) {
        // Not `eprintln!`: the test runner would capture that.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: {why} ({preset} on {}, {name})",
            world.name()
        );
    }
}

/// Makes every behaviour a test for every preset, in the world that the expression makes.
#[macro_export]
macro_rules! rpc_conformance {
    ($world:expr) => {
        $crate::rpc_conformance! { $world;
            plain Plain, flock Flock, qp_per_thread QpPerThread, spinlock_2 Spinlock2, spinlock_4 Spinlock4,
            flock_no_coalescing FlockNoCoalescing, flock_no_scheduling FlockNoScheduling, fasst Fasst, scalerpc ScaleRpc, rawwrite RawWrite,
            selfrpc SelfRpc, erpc Erpc, herd Herd, flor Flor, xrdma Xrdma, rb2 Rb2, auto Auto
        }
    };
    ($world:expr; $($module:ident $preset:ident),*) => {
        #[test]
        fn no_preset_is_left_out() {
            let tried = [$($crate::Preset::$preset),*];
            assert_eq!(tried, $crate::Preset::ALL);
        }
        $crate::rpc_conformance! { some $world; $($module $preset),* }
    };
    (some $world:expr; $($module:ident $preset:ident),*) => {
        $(mod $module {
            use super::*;
            $crate::rpc_conformance_behaviours! { $world, $crate::Preset::$preset;
                payloads_of_all_sizes_come_back,
                requests_filled_in_place_arrive,
                requests_written_where_they_leave_from_arrive,
                messages_over_the_limits_are_errors,
                handlers_may_fail_panic_or_be_missing,
                one_sided_operations_work_or_are_refused,
                batches_give_each_call_its_own_answer,
                pipelines_keep_calls_out,
                pipelines_are_awaited,
                threads_share_a_client,
                futures_of_many_tasks_end,
                tasks_of_one_thread_have_their_own_answers,
                slow_handlers_hold_up_nobody,
                deferred_handlers_answer_in_any_order,
                async_handlers_wait_together,
                tasks_sleep_on_pipelines,
                handlers_hear_of_callers_that_give_up,
                a_deadline_ends_the_wait_and_not_the_connection,
                dropping_a_future_cancels_its_call_alone,
                idle_threads_sleep_and_are_woken,
                connections_come_and_go,
                closing_ends_calls_that_are_out,
                a_shutdown_answers_what_was_accepted,
                a_client_finds_its_server_again,
                a_peer_without_manners_harms_itself_alone,
                nothing_is_lost_on_a_good_network,
                each_call_is_executed_once_or_reported
            }
        })*
    };
}

/// The tests of one preset; see [`rpc_conformance!`](crate::rpc_conformance).
#[macro_export]
#[doc(hidden)]
macro_rules! rpc_conformance_behaviours {
    ($world:expr, $preset:expr; $($behaviour:ident),*) => {
        $(#[test]
        fn $behaviour() {
            $crate::conformance::run(
                &$world, $preset, stringify!($behaviour), $crate::conformance::$behaviour,
            );
        })*
    };
}
