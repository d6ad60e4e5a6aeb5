//! The verbs requested by the tables of a file, checked.

use dunlin_verbs::{Transport, GRH_BYTES};

use super::super::check::{self, Values};
use super::super::mistake::Mistake;
use super::super::model::{cores_of, nic_of, numbers, Hosts};
use super::super::tree::Table;
use crate::load::{Answer, Choice, Plan, Posting, Verb};

/// A group of verbs.
#[derive(Clone, Debug)]
pub(in super::super) struct Verbs {
    pub(in super::super) name: String,
    pub(super) posting: Posting,
}

/// Maximum number of queue pairs of all groups, of RECEIVEs of a thread, and of bytes of a host's memory.
const QUEUE_PAIRS_MOST: usize = 65_536;
const RECEIVES_MOST: usize = 1 << 20;
const ZONES_MOST: u64 = 16 << 30;
/// Default number of RECEIVEs of a queue pair for datagrams: a lost one is not repeated.
const DATAGRAMS: u64 = 512;
/// Bytes of an atomic.
const ATOMIC_BYTES: usize = 8;
/// A cache line, in which by default no two places are.
const LINE: u64 = 64;

/// Reads the tables of verbs.
pub(in super::super) fn read(root: &Table, hosts: &[Hosts]) -> Result<Vec<Verbs>, Mistake> {
    let mut all = Vec::<Verbs>::new();
    let mut queue_pairs = 0;
    for (number, group) in check::all(root, "verbs")?.iter().enumerate() {
        let name = group.text("name").unwrap_or_else(|| number.to_string());
        if all.iter().any(|other| other.name == name) {
            return Err(group.wrong("name", &format!("{name:?}"), "another group has this name"));
        }
        let posting = posting(group, hosts)?;
        queue_pairs += posting.queue_pairs;
        if queue_pairs > QUEUE_PAIRS_MOST {
            let must = format!("with it there are {queue_pairs}, {QUEUE_PAIRS_MOST} at most");
            return Err(group.wrong("queue_pairs", &posting.queue_pairs.to_string(), must));
        }
        all.push(Verbs { name, posting });
    }
    Ok(all)
}

fn posting(group: &Values<'_>, hosts: &[Hosts]) -> Result<Posting, Mistake> {
    let (requesters, targets) = (
        numbers(group, "requesters", hosts)?,
        numbers(group, "targets", hosts)?,
    );
    if let Some(alone) = requesters
        .iter()
        .find(|&one| targets.iter().all(|to| to == one))
    {
        let must = format!("host {alone} is a requester and has no target but itself");
        return Err(group.wrong("targets", &shown(group, "targets"), must));
    }
    let (verb, transport) = kind(group)?;
    let threads = group.count("threads") as usize;
    let queue_pairs = group.number("queue_pairs");
    let queue_pairs = queue_pairs.map_or(threads * requesters.len(), |count| count as usize);
    let threads = threads.min(queue_pairs.div_ceil(requesters.len()));
    let receivers = group.number("receivers");
    let receivers = receivers.map_or(threads, |count| count as usize);
    if let Some(host) = targets.iter().find(|host| requesters.contains(host)) {
        let (cores, wanted) = (cores_of(*host, hosts), threads + receivers);
        if wanted > cores {
            let must = format!(
                "a host on both sides has {wanted} threads with those that post, and {cores} cores"
            );
            return Err(group.wrong("receivers", &receivers.to_string(), must));
        }
    }
    for (key, count, on) in [
        ("threads", threads, &requesters),
        ("receivers", receivers, &targets),
    ] {
        let cores = on
            .iter()
            .map(|&host| cores_of(host, hosts))
            .min()
            .unwrap_or(0);
        if count > cores {
            let must = format!("one of its hosts has {cores} cores, and each thread takes one");
            return Err(group.wrong(key, &count.to_string(), must));
        }
    }
    let outstanding = group.count("outstanding");
    let answer = answer(group, verb, (&targets, hosts))?;
    let receives = match (verb, group.number("receives")) {
        (Verb::Send, Some(count)) => count as u64,
        (Verb::Send, None) if transport == Transport::UnreliableDatagram => {
            outstanding.max(DATAGRAMS)
        }
        (Verb::Send, None) => outstanding,
        (_, None) => 0,
        (_, Some(count)) => {
            let must = "only SENDs take RECEIVEs: leave it out, or let `operation` be \"send\"";
            return Err(group.wrong("receives", &count.to_string(), must));
        }
    };
    let posting = Posting {
        plan: Plan {
            answer,
            ..plan(group, verb, (&requesters, hosts))?
        },
        requesters,
        targets,
        queue_pairs,
        threads,
        receivers,
        receives: receives as usize,
        transport,
        destinations: destinations(group, transport)?,
        zone_bytes: zone(group)?,
        own_completions: own_completions(group, transport)?,
    };
    of_memory(group, &posting, hosts)?;
    Ok(posting)
}

/// Distance between two places.
fn distance(group: &Values<'_>) -> u64 {
    let place = group.number("place").map(|bytes| bytes as u64);
    // A RECEIVE of a datagram has room for the header, too.
    let head = match group.text("transport").as_deref() {
        Some("ud") => GRH_BYTES as u64,
        _ => 0,
    };
    place.unwrap_or_else(|| (group.count("size") + head).next_multiple_of(LINE))
}

fn zone(group: &Values<'_>) -> Result<Option<u64>, Mistake> {
    match (group.flag("own_places"), group.number("zone")) {
        (true, Some(zone)) => Ok(Some(zone as u64)),
        (true, None) => Ok(Some(group.count("places") * distance(group))),
        (false, None) => Ok(None),
        (false, Some(zone)) => {
            let must = "it is for places of each queue pair: let `own_places` be true";
            Err(group.wrong("zone", &format!("{zone} B"), must))
        }
    }
}

fn destinations(group: &Values<'_>, transport: Transport) -> Result<usize, Mistake> {
    let count = group.count("destinations") as usize;
    if count > 1 && transport != Transport::UnreliableDatagram {
        let must = "a queue pair of rc and uc has one peer: it is for ud";
        return Err(group.wrong("destinations", &count.to_string(), must));
    }
    Ok(count)
}

fn answer(
    group: &Values<'_>,
    verb: Verb,
    (targets, hosts): (&[usize], &[Hosts]),
) -> Result<Option<Answer>, Mistake> {
    let Some(bytes) = group.number("answer").map(|bytes| bytes as usize) else {
        return Ok(None);
    };
    let shown = format!("{bytes} B");
    if verb != Verb::Send {
        let must = "only SENDs are answered: leave it out, or let `operation` be \"send\"";
        return Err(group.wrong("answer", &shown, must));
    }
    if group.flag("own_completions") {
        let must = "answers to all queue pairs of a thread come to one completion queue: leave out `own_completions`";
        return Err(group.wrong("answer", &shown, must));
    }
    let inline = |&host: &usize| bytes <= nic_of(host, hosts).max_inline_bytes as usize;
    Ok(Some(Answer {
        bytes,
        inline: targets.iter().all(inline),
    }))
}

fn own_completions(group: &Values<'_>, transport: Transport) -> Result<bool, Mistake> {
    let own = group.flag("own_completions");
    if own && transport == Transport::UnreliableDatagram {
        let must = "with ud a thread posts on one queue pair at a time: it is for rc and uc";
        return Err(group.wrong("own_completions", "true", must));
    }
    Ok(own)
}

fn shown(group: &Values<'_>, key: &str) -> String {
    format!("{:?}", group.texts(key).join(", "))
}

fn kind(group: &Values<'_>) -> Result<(Verb, Transport), Mistake> {
    let verb = match group.text("operation").as_deref() {
        Some("read") => Verb::Read,
        Some("write") => Verb::Write,
        Some("fetch-add") => Verb::FetchAndAdd,
        _ => Verb::Send,
    };
    let transport = match group.text("transport").as_deref() {
        Some("uc") => Transport::UnreliableConnection,
        Some("ud") => Transport::UnreliableDatagram,
        _ => Transport::ReliableConnection,
    };
    let found = shown(group, "transport");
    match (verb, transport) {
        (Verb::Read, Transport::UnreliableConnection | Transport::UnreliableDatagram) => {
            Err(group.wrong("transport", &found, "READs need rc"))
        }
        (Verb::FetchAndAdd, Transport::UnreliableConnection | Transport::UnreliableDatagram) => {
            Err(group.wrong("transport", &found, "atomics need rc"))
        }
        (Verb::Write, Transport::UnreliableDatagram) => {
            Err(group.wrong("transport", &found, "WRITEs need rc or uc"))
        }
        _ => Ok((verb, transport)),
    }
}

fn plan(
    group: &Values<'_>,
    verb: Verb,
    (requesters, hosts): (&[usize], &[Hosts]),
) -> Result<Plan, Mistake> {
    let count = |key: &str| group.count(key) as usize;
    let (window, signal_every, batch) =
        (count("outstanding"), count("signal_every"), count("batch"));
    for (key, value) in [("signal_every", signal_every), ("batch", batch)] {
        if value > window {
            let must = format!("it must be `outstanding`, {window}, at most");
            return Err(group.wrong(key, &value.to_string(), must));
        }
    }
    if signal_every % batch != 0 && batch % signal_every != 0 {
        let must = format!("one of it and `signal_every`, {signal_every}, must divide the other");
        return Err(group.wrong("batch", &batch.to_string(), must));
    }
    let (bytes, inline) = (count("size"), group.flag("inline"));
    if inline && matches!(verb, Verb::Read | Verb::FetchAndAdd) {
        let must = "READs and atomics bring bytes and carry none";
        return Err(group.wrong("inline", "true", must));
    }
    if verb == Verb::FetchAndAdd && bytes != ATOMIC_BYTES {
        let must = format!("an atomic is of {ATOMIC_BYTES} B");
        return Err(group.wrong("size", &format!("{bytes} B"), must));
    }
    let most = requesters.iter().map(|&host| nic_of(host, hosts));
    let most = most.map(|nic| nic.max_inline_bytes as usize).min();
    if let Some(most) = most.filter(|&most| inline && bytes > most) {
        let must = format!("the NIC takes {most} B inline at most, and `size` is {bytes} B");
        return Err(group.wrong("inline", "true", must));
    }
    Ok(Plan {
        verb,
        answer: None,
        bytes,
        inline,
        window,
        signal_every,
        batch,
        choice: match group.text("order").as_deref() {
            Some("in-turn") => Choice::InTurn,
            _ => Choice::Random,
        },
        places: (distance(group), group.count("places")),
        seed: 0,
    })
}

/// Checks the group's use of host memory, and the length of datagrams.
fn of_memory(group: &Values<'_>, posting: &Posting, hosts: &[Hosts]) -> Result<(), Mistake> {
    let bytes = posting.plan.bytes;
    let all = posting.requesters.iter().chain(&posting.targets);
    let mtu = all
        .map(|&host| nic_of(host, hosts).mtu_bytes as usize)
        .min();
    let answer = posting.plan.answer.map_or(0, |answer| answer.bytes);
    for (key, bytes) in [("size", bytes), ("answer", answer)] {
        if let Some(mtu) = mtu.filter(|&mtu| bytes > mtu) {
            if posting.transport == Transport::UnreliableDatagram {
                let must = format!("a datagram has the MTU at most, {mtu} B");
                return Err(group.wrong(key, &format!("{bytes} B"), must));
            }
        }
    }
    if let Some(zone) = posting.zone_bytes.filter(|&zone| zone < posting.span()) {
        let key = if group.has("zone") { "zone" } else { "place" };
        let must = format!(
            "a queue pair's places take {} B and are {zone} B from the next one's: they would overlap",
            posting.span()
        );
        return Err(group.wrong(key, "too little", must));
    }
    let memory = posting.memory();
    if memory > ZONES_MOST {
        let key = if group.has("zone") { "zone" } else { "places" };
        let must = format!("a host would need {memory} B for it, {ZONES_MOST} at most");
        return Err(group.wrong(key, "too much", must));
    }
    let receives = posting.receives_of_a_thread();
    if receives > RECEIVES_MOST {
        let must =
            format!("a thread of a target would keep {receives} posted, {RECEIVES_MOST} at most");
        return Err(group.wrong("receives", &posting.receives.to_string(), must));
    }
    Ok(())
}
