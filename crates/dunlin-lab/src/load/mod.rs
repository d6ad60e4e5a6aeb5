//! Loads: simulated threads that use verbs as the papers' raw benchmarks do, and the measurement of their rates.

// Its source is frozen as it was when it first ran.
#[allow(clippy::needless_range_loop)]
mod all_to_all;
mod application;
mod connect;
mod crowd;
mod done;
mod fan;
mod flor;
mod index;
mod measure;
mod metadata;
mod perftest;
mod ping_pong;
mod posting;
mod receiver;
mod requester;
mod ring;
mod rpc;
mod shared;
mod sharing;
mod swarm;
mod transactions;
mod unreliable;

pub use all_to_all::{all_to_all, AllToAll, AllToAllResult};
pub use application::{Application, ApplicationBench, ApplicationResult};
pub use connect::{connect, pair_config, Cable, End};
pub use crowd::{Crowd, CrowdResult};
pub use done::Done;
pub use fan::{fan, one_requester, Direction, Fan};
pub use flor::{mesh, time_to_switch, Flor, FlorBench, FlorResult};
pub use index::{Cost, Index, IndexLoad};
pub use measure::{rate, Rate, Window};
pub use metadata::{Mdtest, Metadata, Operation, Tree};
pub use perftest::Perftest;
pub use ping_pong::{one_read, ping_pong};
pub use posting::Posting;
pub use requester::{Answer, Choice, Plan, Requester, Verb, Way};
pub use ring::{dialogue, ring, stream, Answered, Compute, Dialogue, Hosts, Streamed};
pub(crate) use rpc::DATAGRAMS;
pub use rpc::{RpcBench, RpcPlan, RpcResult};
pub use sharing::shared_reads;
pub use swarm::{swarm, swarm_on, Swarm};
pub use transactions::{Transactions, TransactionsBench, TransactionsResult, Work};
pub use unreliable::{drops_late_write, loses_whole_verb};
