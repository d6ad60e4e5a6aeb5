//! The active end of a test.

use crate::{
    Access, Completion, CompletionQueue, CompletionStatus, Device, EndpointAddress, QueuePair,
    Transport, Verbs,
};

use super::fixture::patiently;
use super::{
    wait, Endpoint, Harness, HostPeer, LocalPeer, Mode, Options, Outcome, PeerRegion, ProcessPeer,
    Remote, Skipped,
};

/// A local endpoint and the peer's at the other end.
#[derive(Debug)]
pub struct Link<D: Device> {
    /// The local endpoint.
    pub local: Endpoint<D>,
    /// The peer's endpoint, by its number there.
    pub remote: u32,
    /// The address of the peer's endpoint.
    pub remote_address: EndpointAddress,
}

/// The active end of a test, and the remote control of the passive end.
#[derive(Debug)]
pub struct Stage<D: Device> {
    /// The peer.
    pub peer: Remote,
    /// Polled in every wait, for devices that make progress only then.
    spare: D::CompletionQueue,
    /// The local protection domain.
    pub domain: D::ProtectionDomain,
    /// The local device.
    pub device: D,
}

impl<D: Device> Stage<D> {
    /// Opens both ends, without endpoints yet.
    ///
    /// # Errors
    /// The reason why they are not available here.
    pub fn open<H: Harness<Device = D>>(
        harness: &H,
        mode: Mode,
        peer_module: &str,
    ) -> Result<Self, String> {
        let (device, peer) = match mode {
            Mode::Loopback => {
                let device = harness.open()?;
                let peer = LocalPeer::new(device.clone());
                (device, Remote::new(Box::new(peer)))
            }
            Mode::InProcess => {
                let (device, other) = harness.open_two()?;
                (device, Remote::new(Box::new(LocalPeer::new(other))))
            }
            Mode::BetweenProcesses => {
                harness.between_processes()?;
                let device = harness.open()?;
                let peer = match HostPeer::connect()? {
                    Some(peer) => Remote::new(Box::new(peer)),
                    None => Remote::new(Box::new(ProcessPeer::start(peer_module)?)),
                };
                (device, peer)
            }
        };
        let domain = device
            .create_protection_domain()
            .expect("a protection domain");
        let spare = device
            .create_completion_queue(1, None)
            .expect("a completion queue");
        Ok(Self {
            peer,
            spare,
            domain,
            device,
        })
    }

    /// Returns why a behaviour cannot be tested here.
    pub fn lacks(&self, what: &str) -> Skipped {
        Skipped(format!("{} has no {what}", self.device.attributes().name))
    }

    /// Checks that `transport` supports all of `verbs`.
    ///
    /// # Errors
    /// When it does not.
    pub fn needs(&self, transport: Transport, verbs: Verbs) -> Outcome {
        let missing = verbs - self.device.attributes().transports.verbs(transport);
        if missing.is_empty() {
            Ok(())
        } else {
            Err(self.lacks(&format!("{missing:?} on {transport}")))
        }
    }

    /// The connected transports that support all of `verbs`.
    ///
    /// # Errors
    /// When there is none.
    pub fn connected(&self, verbs: Verbs) -> Result<Vec<Transport>, Skipped> {
        let mut all = vec![
            Transport::ReliableConnection,
            Transport::UnreliableConnection,
        ];
        all.retain(|&transport| self.needs(transport, verbs).is_ok());
        if all.is_empty() {
            return Err(self.lacks(&format!("{verbs:?} on a connection")));
        }
        Ok(all)
    }

    /// A connected pair of moderate size.
    pub fn link(&mut self, transport: Transport) -> Link<D> {
        let options = Options::new(transport);
        self.link_with(&options, &options)
    }

    /// A connected pair with these options for the two ends.
    ///
    /// # Panics
    /// When the device refuses.
    pub fn link_with(&mut self, ours: &Options, theirs: &Options) -> Link<D> {
        let mut local = self.endpoint(ours);
        let (remote, remote_address) = self.peer.endpoint(theirs);
        let address = local.queue_pair.address();
        self.peer.connect(remote, Some(&address), theirs.attributes);
        local
            .connect(Some(&remote_address), ours.attributes)
            .expect("connects");
        Link {
            local,
            remote,
            remote_address,
        }
    }

    /// A local endpoint in state Init.
    ///
    /// # Panics
    /// When the device refuses.
    pub fn endpoint(&self, options: &Options) -> Endpoint<D> {
        Endpoint::new(&self.device, &self.domain, options, None).expect("an endpoint")
    }

    /// Local memory for any local use, containing `bytes`.
    pub fn holding(&self, bytes: &[u8]) -> D::Region {
        let region = self.blank(bytes.len().max(1));
        crate::Region::memory(&region).write(0, bytes);
        region
    }

    /// Local memory for any local use.
    pub fn blank(&self, length: usize) -> D::Region {
        self.region(length, Access::LOCAL_WRITE)
    }

    /// Local memory with this access.
    ///
    /// # Panics
    /// When the device refuses.
    pub fn region(&self, length: usize, access: Access) -> D::Region {
        self.device
            .allocate_region(&self.domain, length, access)
            .unwrap_or_else(|error| panic!("a region of {length} bytes: {error}"))
    }

    /// Lets both ends of `link` and both devices make progress; takes no local completion.
    pub fn step(&mut self, link: &Link<D>) {
        self.pump();
        self.peer.pump(link.remote);
    }

    /// Lets the local device make progress without taking any test's completions.
    pub fn pump(&mut self) {
        let mut one = [Completion::EMPTY];
        let count = self.spare.poll(&mut one).expect("nothing comes here");
        assert_eq!(count, 0, "a completion in a queue without queue pairs");
    }

    /// Waits until the byte at `at` of the peer's `region` is `byte`: on UC a completion does not mean that a WRITE has
    /// arrived.
    pub fn landed(&mut self, link: &Link<D>, region: PeerRegion, at: usize, byte: u8) {
        wait("a WRITE", || {
            self.step(link);
            (self.peer.read(region, at, 1) == [byte]).then_some(())
        });
    }

    /// The next local completion.
    pub fn ours(&mut self, link: &mut Link<D>) -> Completion {
        wait("our completion", || {
            self.peer.pump(link.remote);
            link.local.poll()
        })
    }

    /// The peer's next completion on this link.
    pub fn theirs(&mut self, link: &mut Link<D>) -> Completion {
        let found = patiently(|| {
            self.pump();
            self.peer.poll(link.remote)
        });
        found.unwrap_or_else(|| {
            let ours = link.local.queue_pair.state();
            let why = link.local.queue_pair.failure();
            let theirs = self.peer.state(link.remote);
            panic!("waited in vain for the peer's completion; ours is {ours:?} ({why:?}), the peer's {theirs:?}")
        })
    }

    /// The next local completion, which must be the success of request `id`.
    pub fn done(&mut self, link: &mut Link<D>, id: u64) -> Completion {
        let completion = self.ours(link);
        let why = link.local.queue_pair.failure();
        assert!(completion.is_success(), "{completion:?}: {why:?}");
        check(&completion, id, CompletionStatus::Success);
        assert_eq!(completion.queue_pair, link.local.queue_pair.number());
        completion
    }

    /// The peer's next completion, which must be the success of its request `id`.
    pub fn arrived(&mut self, link: &mut Link<D>, id: u64) -> Completion {
        let completion = self.theirs(link);
        check(&completion, id, CompletionStatus::Success);
        assert_eq!(completion.queue_pair, link.remote_address.queue_pair);
        completion
    }

    /// The next local completion, which must be the failure of request `id`; returns its status.
    pub fn failed(&mut self, link: &mut Link<D>, id: u64) -> CompletionStatus {
        let completion = self.ours(link);
        assert_eq!(completion.id, id, "{completion:?}");
        assert!(
            !completion.is_success(),
            "{completion:?} should have failed"
        );
        completion.status
    }
}

/// Checks that a completion is the expected one.
fn check(completion: &Completion, id: u64, status: CompletionStatus) {
    assert_eq!(
        (completion.id, completion.status),
        (id, status),
        "{completion:?}"
    );
}
