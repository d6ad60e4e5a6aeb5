//! The conformance suite: one function per behaviour, written once and run for every device.
//!
//! The crate of a device has one test file with one line:
//!
//! ```ignore
//! dunlin_verbs::conformance_suite!(MyHarness);
//! ```
//!
//! This turns every behaviour into three `#[test]`s: `loopback` (both ends on one open device), `in_process` (on two)
//! and `between_processes`. The behaviour drives the active end itself and the passive end through a [`Remote`], whose
//! commands an [`Agent`] executes: in this process, or in a child that runs the same test executable, which a prefix to
//! its command line ([`child_command`]) can put into another network namespace, or, if `DUNLIN_CONFORMANCE_PEER_AT`
//! names one, in a process of another host, whose device may be of another kind.
//!
//! If a device is not available, or lacks a feature according to its own attributes, the test prints `skipped: why`,
//! bypassing the test runner's capture. Behaviours wait for conditions for at most [`PATIENCE`], and never treat the
//! passing of time as proof.
//!
//! Where the verbs leave a choice to the device, the behaviour's comment says what is accepted.

use std::io::Write;

use crate::Device;

mod agent;
pub mod atomics;
pub mod completion;
pub mod datagram;
pub mod errors;
pub mod events;
mod fixture;
pub mod inline;
pub mod lengths;
pub mod limits;
mod list;
pub mod local_protection;
pub mod mapped;
mod message;
pub mod one_sided;
pub mod ordering;
mod peer;
pub mod protection;
pub mod receive;
mod remote;
pub mod send;
pub mod shared_receive;
mod stage;
pub mod state;

pub use agent::Agent;
pub use fixture::{pattern, piece, wait, Endpoint, Handle, Options, Piece, Request, PATIENCE};
pub use message::{Message, Op};
pub use peer::{child_command, serve, HostPeer, LocalPeer, Peer, ProcessPeer};
pub use remote::{PeerRegion, Remote};
pub use stage::{Link, Stage};

/// How the suite obtains a device.
pub trait Harness {
    /// The device.
    type Device: Device;

    /// The device's name for display.
    fn name(&self) -> String;

    /// Opens a device.
    ///
    /// # Errors
    /// The reason why the device is not available here.
    fn open(&self) -> Result<Self::Device, String>;

    /// Opens two devices that reach each other, in this process.
    ///
    /// # Errors
    /// The reason why there are not two.
    fn open_two(&self) -> Result<(Self::Device, Self::Device), String> {
        Ok((self.open()?, self.open()?))
    }

    /// Checks that a device opened by another process can be reached.
    ///
    /// # Errors
    /// The reason why not.
    fn between_processes(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Where the passive end runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// On the same open device.
    Loopback,
    /// On a second open device of this process.
    InProcess,
    /// In a child process.
    BetweenProcesses,
}

/// Why a behaviour was not tested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped(pub String);

/// What a behaviour returns; a failure is a panic.
pub type Outcome = Result<(), Skipped>;

/// Runs one behaviour and reports if it was skipped; `peer_module` is the module of the child's entry.
///
/// # Panics
/// When the device does not behave as required.
pub fn run<H: Harness>(
    harness: &H,
    mode: Mode,
    peer_module: &str,
    name: &str,
    behaviour: fn(&mut Stage<H::Device>) -> Outcome,
) {
    let outcome = Stage::open(harness, mode, peer_module)
        .map_err(Skipped)
        .and_then(|mut stage| behaviour(&mut stage));
    if let Err(Skipped(why)) = outcome {
        // Not `eprintln!`: the test runner would capture that.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: {why} ({} {mode:?} {name})",
            harness.name()
        );
    }
}

/// Turns every behaviour of the suite into a test for the device of a [`Harness`], in each [`Mode`].
#[macro_export]
macro_rules! conformance_suite {
    ($harness:expr) => {
        /// The passive end of `between_processes`: returns at once unless this process was started for it.
        #[test]
        fn conformance_peer() {
            $crate::conformance::serve(&$harness);
        }
        fn conformance_peer_module() -> &'static str {
            module_path!()
        }
        mod loopback {
            #[allow(unused_imports)]
            use super::*;
            $crate::conformance_behaviours!($harness, Loopback);
        }
        mod in_process {
            #[allow(unused_imports)]
            use super::*;
            $crate::conformance_behaviours!($harness, InProcess);
        }
        mod between_processes {
            #[allow(unused_imports)]
            use super::*;
            $crate::conformance_behaviours!($harness, BetweenProcesses);
        }
    };
}
