//! Networks that lose, duplicate and delay packets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Job, Outcome, Skipped, Stage, Weather};
use crate::{CallError, ChannelConfig, Preset};

const COUNTED: u16 = 2;

/// How often each request was executed, by its number.
type Executions = Arc<Mutex<BTreeMap<u64, u32>>>;

/// How each call of a thread ended, by its number.
type Ends = Arc<Mutex<BTreeMap<u64, Result<(), CallError>>>>;

/// Calls of three threads, each with a number, some of them long.
fn load(stage: &Stage<'_>, calls: u64, weather: Option<Weather>) -> (Executions, Ends) {
    let executions = Executions::default();
    let counted = Arc::clone(&executions);
    let server = stage.server().handle(COUNTED, move |request, reply| {
        let number = request
            .payload()
            .first_chunk()
            .map(|n| u64::from_le_bytes(*n));
        let mut counted = counted.lock().expect("no panic");
        *counted.entry(number.expect("each has one")).or_default() += 1;
        reply.write(request.payload())
    });
    let server = stage.serve(server);
    // In real time a thread may wait that long for a processor.
    let loss_timeout = match stage.world.is_not_real() {
        Some(_) => Duration::from_millis(20),
        None => ChannelConfig::default().loss_timeout,
    };
    let config = ChannelConfig {
        loss_timeout,
        ..Default::default()
    };
    let client = stage.client_of(stage.builder().channel(config), &server);
    let ends = Ends::default();
    let mut jobs: Vec<Job<'static>> = Vec::new();
    for thread in 0..3u64 {
        let mut pipeline = client.pipeline().expect("a lane");
        let ends = Arc::clone(&ends);
        jobs.push(Box::new(move || {
            let (mut sent, mut ended) = (0u64, 0u64);
            while ended < calls {
                while sent < calls && pipeline.outstanding() < 10 {
                    let number = thread << 32 | sent;
                    let length = [8, 64, 300, 9000][sent as usize % 4];
                    let mut payload = vec![sent as u8; length];
                    payload[..8].copy_from_slice(&number.to_le_bytes());
                    match pipeline.submit(COUNTED, &payload, number) {
                        Ok(true) => sent += 1,
                        Ok(false) => break,
                        Err(error) => panic!("the lane is lost: {error}"),
                    }
                }
                let waited = pipeline.wait(|number, answer| {
                    let end = answer.map(|bytes| {
                        let (name, rest) = bytes.split_first_chunk().expect("its number");
                        assert_eq!(u64::from_le_bytes(*name), number, "another call's answer");
                        assert!(rest.iter().all(|&byte| byte == number as u8));
                    });
                    let twice = ends.lock().expect("no panic").insert(number, end);
                    assert!(twice.is_none(), "a call ended twice");
                    ended += 1;
                });
                if let Err(error) = waited {
                    panic!("the lane is lost: {error}");
                }
            }
        }));
    }
    if weather.is_some() {
        stage.world.set_weather(weather);
    }
    stage.world.run(jobs);
    stage.world.set_weather(None);
    (executions, ends)
}

/// On a network that delivers everything, every call is answered, and executed once.
pub fn nothing_is_lost_on_a_good_network(stage: &Stage<'_>) -> Outcome {
    let calls = 400;
    let (executions, ends) = load(stage, calls, None);
    let ends = ends.lock().expect("no panic");
    assert_eq!(ends.len() as u64, 3 * calls);
    for (number, end) in ends.iter() {
        assert!(end.is_ok(), "{number:#x}: {end:?}");
    }
    let executions = executions.lock().expect("no panic");
    assert_eq!(executions.len() as u64, 3 * calls);
    assert!(executions.values().all(|&count| count == 1));
    Ok(())
}

/// On a bad network no call is executed twice or gets another's answer, and each ends: with its answer, or with an
/// error that says correctly whether it was executed.
pub fn each_call_is_executed_once_or_reported(stage: &Stage<'_>) -> Outcome {
    let weather = Weather {
        lost: 0.002,
        twice: 0.02,
        late: 0.02,
    };
    if !stage.world.set_weather(None) {
        return Err(Skipped("its packets cannot be lost".to_owned()));
    }
    let calls = 400;
    let (executions, ends) = load(stage, calls, Some(weather));
    let (executions, ends) = (
        executions.lock().expect("no panic"),
        ends.lock().expect("no panic"),
    );
    assert_eq!(ends.len() as u64, 3 * calls, "not each call ended");
    let mut lost = 0;
    for (number, end) in ends.iter() {
        let times = executions.get(number).copied().unwrap_or(0);
        match end {
            Ok(()) => assert_eq!(times, 1, "{number:#x}"),
            Err(CallError::PacketLost { executed }) => {
                lost += 1;
                assert_eq!(times, u32::from(*executed), "{number:#x}");
            }
            Err(error) => panic!("{number:#x}: {error}"),
        }
    }
    if !matches!(stage.preset, Preset::Fasst | Preset::Herd) {
        assert_eq!(lost, 0, "what it sends is sent again until it has arrived");
    }
    println!("{lost} of {} calls were reported lost", ends.len());
    Ok(())
}
