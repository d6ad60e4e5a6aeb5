//! Memory of written messages that rests says when it is to be looked at again: nothing else may come that would.

use dunlin_flor::connection::{Deployment, LateWrites};
use dunlin_flor::logical::{LinkConfig, LinkEvent, LogicalConnection, Source};
use dunlin_shm::{ShmConfig, ShmDevice};

const BYTES: usize = 100_000;
const REST_NS: u64 = 1_000_000_000_000;
const TAG: u32 = 7;

type Link = LogicalConnection<ShmDevice>;

/// The number of the next message that is announced, which is seen at this time.
fn announced(ends: &mut [Link; 2], now_ns: u64) -> u32 {
    let region = ends[0].allocate(BYTES).expect("memory");
    let source = Source {
        region,
        offset: 0,
        bytes: BYTES as u32,
    };
    ends[0]
        .submit_tagged(now_ns, source, TAG)
        .expect("it is taken");
    loop {
        while ends[0].poll(now_ns).expect("a device").is_some() {}
        if let Some(LinkEvent::Announced { message, .. }) = ends[1].poll(now_ns).expect("a device")
        {
            return message;
        }
        std::thread::yield_now();
    }
}

#[test]
fn memory_that_rests_is_looked_at_in_time() {
    let device = ShmDevice::open(ShmConfig::default()).expect("a device");
    let mut ends = [(); 2].map(|()| {
        let mut config = LinkConfig::new(Deployment::CrossPod);
        config.connection.late_writes = LateWrites::Always {
            quarantine_ns: REST_NS,
        };
        config.max_landing_bytes = BYTES.next_power_of_two();
        Link::new(device.clone(), config).expect("a connection")
    });
    let addresses = [0, 1].map(|end| ends[end].address());
    for (link, peer) in ends.iter_mut().zip([addresses[1], addresses[0]]) {
        link.connect(&peer, 0, 0).expect("connected");
    }
    let first = announced(&mut ends, 0);
    let memory = ends[1].landing(BYTES as u32, false).expect("memory");
    ends[1].grant(first, TAG, memory);
    let landing = loop {
        while ends[0].poll(0).expect("a device").is_some() {}
        if let Some(LinkEvent::Landed { landing, .. }) = ends[1].poll(0).expect("a device") {
            break landing;
        }
        std::thread::yield_now();
    };
    ends[1].release(landing);

    // Nothing more comes, and whoever sleeps until there is something to do looks when it has rested.
    let mut now_ns = 0;
    while ends[1].landing(BYTES as u32, false).is_none() {
        assert!(now_ns < REST_NS, "it has rested");
        let next_ns = ends[1].next_deadline(now_ns).expect("it rests");
        now_ns = next_ns.max(now_ns + 1);
        for link in &mut ends {
            while link.poll(now_ns).expect("a device").is_some() {}
        }
    }
}
