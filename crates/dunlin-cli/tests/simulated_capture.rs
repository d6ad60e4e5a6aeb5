//! `dunlin lab run FILE.toml --capture`: packets of simulated hosts as RoCEv2, which tshark dissects.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use common::{dunlin, failure, object, Scratch};
use dunlin_cli::capture::{Bounds, Recorder};
use dunlin_roce::packet::{icrc_agrees, parse, Envelope, Network, Operation, Syndrome};
use dunlin_sim::{Cluster, HostParameters, NicParameters, SimQueuePair, SwitchParameters};
use dunlin_verbs::{
    Access, Completion, CompletionQueue, ConnectAttributes, Device, Operation as Verb, Payload,
    QueuePair, QueuePairConfig, ReceiveQueue, ReceiveRequest, Region, RemoteAddress, RemoteKey,
    Segment, SendFlags, SendRequest, Transport,
};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use pcap_file::pcapng::{Block, PcapNgReader};

const WIDE: Bounds = Bounds {
    packets: 1_000_000,
    bytes: 1 << 30,
    snap: 65_536,
};

const FILE: &str = r#"
[topology]
switch = "z9264f"
[[topology.hosts]]
name = "server"
[[topology.hosts]]
name = "clients"
count = 2
[server]
host = "server"
[[clients]]
hosts = "clients"
[nic]
in_order_placement = 1
[run]
warm_up = "10us"
duration = "40us"
"#;

/// A packet of a file: its interface, nanoseconds, whether it leaves, bytes.
type Packet = (String, u64, bool, Vec<u8>);

/// The packets of a file, with the names of their interfaces.
fn packets(path: &str) -> Vec<Packet> {
    let file = File::open(path).expect("the file");
    let mut reader = PcapNgReader::new(BufReader::new(file)).expect("pcapng");
    let (mut names, mut packets) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block() {
        match block.expect("a block").into_owned() {
            Block::InterfaceDescription(interface) => {
                let name = format!("{:?}", interface.options[0]);
                names.push(name.split('"').nth(1).expect("a name").to_owned());
            }
            Block::EnhancedPacket(packet) => {
                let leaves = format!("{:?}", packet.options).contains("Flags(2)");
                let name = names[packet.interface_id as usize].clone();
                let at = packet.timestamp.as_nanos() as u64;
                packets.push((name, at, leaves, packet.data.into_owned()));
            }
            other => panic!("{other:?}"),
        }
    }
    packets
}

/// What a frame does; it must be whole, and its CRCs right.
fn operation(frame: &[u8]) -> Operation {
    let sliced = SlicedPacket::from_ethernet(frame).expect("headers");
    let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) = (sliced.net, sliced.transport)
    else {
        panic!("{frame:?}");
    };
    let header = ip.header().to_header();
    assert_eq!(header.header_checksum, header.calc_header_checksum());
    assert_eq!(udp.destination_port(), 4791);
    let (packet, crc) = udp.payload().split_last_chunk::<4>().expect("a CRC");
    let envelope = Envelope {
        network: Network::V4 {
            source: header.source.into(),
            destination: header.destination.into(),
            identification: header.identification,
            dont_fragment: header.dont_fragment,
        },
        source_port: udp.source_port(),
        destination_port: udp.destination_port(),
    };
    assert!(icrc_agrees(&envelope, packet, *crc), "{frame:?}");
    parse(packet).expect("headers of the transport").0.operation
}

/// What tshark prints of a file; none where it is not installed.
fn tshark(path: &str, arguments: &[&str]) -> Option<String> {
    let run = Command::new("tshark")
        .args(["-r", path])
        .args(arguments)
        .output();
    let Ok(output) = run else {
        eprintln!("skipped: tshark is not installed");
        return None;
    };
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).expect("UTF-8"))
}

/// What `lab run` says Wireshark is to be told of a capture.
const DISSECTION: [&str; 2] = ["--disable-heuristic", "eth_over_ib"];

/// What is malformed by tshark.
fn malformed(path: &str, arguments: &[&str]) -> Option<String> {
    let faults = ["-Y", "_ws.malformed || _ws.expert.severity >= error"];
    tshark(path, &[arguments, &faults].concat())
}

/// The opcodes that tshark reads in a file; nothing may be malformed.
fn opcodes(path: &str) -> Option<BTreeSet<u32>> {
    assert_eq!(malformed(path, &DISSECTION)?, "", "{path}");
    let text = tshark(path, &["-T", "fields", "-e", "infiniband.bth.opcode"])?;
    Some(
        text.lines()
            .map(|line| line.parse().expect("every packet has one"))
            .collect(),
    )
}

/// Verbs of all kinds between two hosts, the last of which is refused.
#[test]
fn each_verb_is_the_packets_of_its_opcodes() {
    let cluster = Cluster::star(
        1,
        2,
        &HostParameters::epyc_7452(),
        &NicParameters::connectx_5(),
        &SwitchParameters::z9264f(),
    );
    let file = Scratch::new("verbs.pcapng", b"");
    let output = File::create(file.path()).expect("a file");
    let names = ["one", "two"].map(|name| Some(name.to_owned()));
    let recorder = Arc::new(Mutex::new(
        Recorder::begin(output, &names, WIDE).expect("begun"),
    ));
    cluster.observe(Some(Box::new(Arc::clone(&recorder))));

    let devices = [0, 1].map(|host: usize| cluster.device(cluster.hosts()[host]));
    let domains = devices
        .each_ref()
        .map(|device| device.create_protection_domain().unwrap());
    let regions = [0, 1].map(|i| {
        devices[i]
            .allocate_region(&domains[i], 1 << 16, Access::all())
            .expect("a region")
    });
    let mut queues = devices
        .each_ref()
        .map(|device| device.create_completion_queue(64, None).unwrap());
    let mut pairs: [SimQueuePair; 2] = [0, 1].map(|i| {
        let config = QueuePairConfig {
            transport: Transport::ReliableConnection,
            send_completions: &queues[i],
            receive_completions: &queues[i],
            send_requests: 64,
            receive_queue: ReceiveQueue::Own(4),
            segments: 1,
            inline_bytes: 0,
        };
        let mut pair = devices[i]
            .create_queue_pair(&domains[i], &config)
            .expect("a pair");
        pair.to_init(Access::all()).expect("Init");
        pair
    });
    let addresses = pairs.each_ref().map(|pair| pair.address());
    for i in 0..2 {
        let peer = Some(&addresses[1 - i]);
        pairs[i]
            .to_ready_to_receive(peer, ConnectAttributes::default())
            .expect("RTR");
        pairs[i].to_ready_to_send().expect("RTS");
    }
    let segment = |length| {
        [Segment {
            region: &regions[1],
            offset: 0,
            length,
        }]
    };
    let receive = segment(100);
    pairs[1]
        .post_receive(&[ReceiveRequest {
            id: 7,
            segments: &receive,
        }])
        .expect("room");

    let remote = regions[1].remote();
    let no_key = RemoteAddress {
        key: RemoteKey(remote.key.0 ^ 1),
        ..remote
    };
    let verbs = [
        (Verb::Send { immediate: Some(9) }, 5),
        (
            Verb::Write {
                remote,
                immediate: None,
            },
            9_000,
        ),
        (Verb::Read { remote }, 9_000),
        (Verb::Read { remote }, 10),
        (
            Verb::Write {
                remote,
                immediate: None,
            },
            8,
        ),
        (
            Verb::CompareAndSwap {
                remote,
                compare: 0,
                swap: 1,
            },
            8,
        ),
        (Verb::FetchAndAdd { remote, add: 3 }, 8),
        (
            Verb::Write {
                remote: no_key,
                immediate: None,
            },
            10,
        ),
    ];
    let mut done = [Completion::EMPTY; 8];
    for (verb, length) in verbs {
        // A counter, whose first bytes are those of IPv4 in an Ethernet packet.
        regions[0].memory().write(0, &8u64.to_le_bytes());
        let segments = [Segment {
            region: &regions[0],
            offset: 0,
            length,
        }];
        let payload = Payload::Segments(&segments);
        let request = SendRequest::new(1, verb, payload, SendFlags::SIGNALED);
        pairs[0].post_send(&[request]).expect("room");
        cluster.run_for(100_000);
        assert_eq!(queues[0].poll(&mut done).expect("no overrun"), 1);
    }
    cluster.observe(None);
    let (taken, left_out) = recorder.lock().expect("no panic").end().expect("written");
    drop(recorder);

    let packets = packets(file.path());
    assert_eq!((packets.len() as u64, left_out), (taken, 0));
    assert!(packets.is_sorted_by_key(|(_, at, ..)| *at));
    let leaving = packets.iter().filter(|(_, _, leaves, _)| *leaves);
    let codes: Vec<u8> = leaving
        .clone()
        .map(|(.., frame)| frame[14 + 20 + 8])
        .collect();
    let expected = [
        0x05, 0x11, // SEND with immediate data, acknowledged
        0x06, 0x07, 0x08, 0x11, // WRITE of three packets
        0x0c, 0x0d, 0x0e, 0x0f, // READ of three
        0x0c, 0x10, // READ of one
        0x0a, 0x11, // WRITE of one
        0x13, 0x12, 0x14, 0x12, // atomics
        0x0a, 0x11, // WRITE, refused
    ];
    assert_eq!(codes, expected);
    let mut last = None;
    for (_, _, _, frame) in &packets {
        last = Some(operation(frame));
    }
    let refused = matches!(last, Some(Operation::Acknowledge { acknowledgement })
        if matches!(acknowledgement.syndrome, Syndrome::Refused(_)));
    assert!(refused, "{last:?}");
    // Each arrives at the other interface, later.
    let mut at: BTreeMap<&[u8], (&str, u64)> = BTreeMap::new();
    for (name, time, leaves, frame) in &packets {
        match leaves {
            true => drop(at.insert(frame, (name, *time))),
            false => {
                let (sender, left) = at[&frame[..]];
                assert!(sender != name && left < *time, "{left} {time}");
            }
        }
    }
    if let Some(opcodes) = opcodes(file.path()) {
        assert_eq!(opcodes, expected.into_iter().map(u32::from).collect());
        let text = tshark(
            file.path(),
            &[
                "-T",
                "fields",
                "-e",
                "infiniband.immdt",
                "-Y",
                "infiniband.immdt",
            ],
        );
        assert!(text.is_some_and(|text| text.lines().count() == 2));
    }
}

/// Runs the file with these arguments.
fn run(arguments: &[&str]) -> Output {
    let file = Scratch::new(
        &format!("capture-{}.toml", arguments.len()),
        FILE.as_bytes(),
    );
    dunlin(&[&["lab", "run", file.path()], arguments].concat())
}

#[test]
fn tshark_dissects_the_packets_of_each_transport() {
    // RC with WRITEs, UD, UC with answers by UD, RC with READs of long messages.
    let cases: [(&str, &str, &[u32]); 4] = [
        ("plain", "64B", &[10, 17]),
        ("fasst", "64B", &[100]),
        ("herd", "64B", &[42, 100]),
        ("xrdma", "32KiB", &[4, 12, 13, 14, 15, 17]),
    ];
    for (preset, bytes, wanted) in cases {
        let out = Scratch::new(&format!("{preset}.pcapng"), b"");
        let (preset, bytes) = (
            format!("clients.preset={preset}"),
            format!("clients.request={bytes}"),
        );
        let ran = run(&["--set", &preset, "--set", &bytes, "--capture", out.path()]);
        assert!(ran.status.success(), "{ran:?}");
        let packets = packets(out.path());
        assert!(packets.is_sorted_by_key(|(_, at, ..)| *at));
        for (.., frame) in &packets {
            operation(frame);
        }
        if let Some(seen) = opcodes(out.path()) {
            let missing: Vec<_> = wanted.iter().filter(|code| !seen.contains(code)).collect();
            assert!(missing.is_empty(), "{preset}: {missing:?} of {seen:?}");
        }
    }
}

#[test]
fn who_looks_changes_nothing_and_chooses_what_is_kept() {
    let shown = |ran: &Output| {
        let object = object(ran);
        (object["digest"].clone(), object["points"].clone())
    };
    let plain = shown(&run(&["--json"]));
    let out = Scratch::new("chosen.pcapng", b"");
    let captured = |more: &[&str]| {
        let ran = run(&[&["--json", "--capture", out.path()], more].concat());
        assert_eq!(shown(&ran), plain);
        (
            packets(out.path()),
            String::from_utf8(ran.stderr).expect("UTF-8"),
        )
    };
    let (all, words) = captured(&[]);
    assert!(
        words.contains(&format!("{} packets of the run seed 1", all.len())),
        "{words}"
    );
    let said = ["wireshark", &DISSECTION.join(" "), "-r", out.path()].join(" ");
    assert!(words.contains(&said), "{words}");
    let names: BTreeSet<&str> = all.iter().map(|(name, ..)| &name[..]).collect();
    assert_eq!(names, ["clients.0", "clients.1", "server"].into());

    let (one, _) = captured(&["--capture-host", "clients.1"]);
    let of_one = |packet: &&Packet| packet.0 == "clients.1";
    assert!(!one.is_empty() && one.iter().eq(all.iter().filter(of_one)));

    let (few, words) = captured(&["--capture-packets", "10", "--capture-snap", "80"]);
    assert_eq!(few.len(), 10);
    assert!(few.iter().all(|(.., frame)| frame.len() <= 80));
    assert!(
        words.contains(&format!("{} more were omitted", all.len() - 10)),
        "{words}"
    );

    let words = failure(
        &run(&["--capture", out.path(), "--capture-host", "nobody"]),
        2,
    );
    assert!(words.contains("server, clients.0, clients.1"), "{words}");
    let words = failure(&run(&["--capture", "/proc/nope"]), 1);
    assert!(words.contains("/proc/nope"), "{words}");
    failure(&run(&["--capture-host", "server"]), 2);
}
