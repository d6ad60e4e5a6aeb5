//! Calls that fail, and leave the connection intact.

use super::{call, Outcome, Stage, ECHO};
use crate::{CallError, ChannelConfig, HandlerError, Preset};

/// A message longer than a side accepts is an error that names the limit.
pub fn messages_over_the_limits_are_errors(stage: &Stage<'_>) -> Outcome {
    let server = stage
        .server()
        .handle(2, |_, reply| reply.write(&[0; 100_000]))
        .handle(3, |_, reply| reply.in_place(100_000).map(drop));
    let server = stage.serve(server);
    let client = stage.client(&server);
    let limit = ChannelConfig::default().max_message_bytes;
    stage.with_pipeline(&client, move |pipeline| {
        match pipeline.submit(ECHO, &vec![0; limit + 1], 1) {
            Err(CallError::TooLong {
                bytes,
                limit: named,
            }) => assert_eq!((bytes, named), (limit + 1, limit)),
            other => panic!("{other:?}"),
        }
        let refused = pipeline.buffer(limit + 1);
        assert!(matches!(refused, Err(CallError::TooLong { .. })));
        assert_eq!(call(pipeline, ECHO, b"fine").expect("an answer"), b"fine");
    });
    let config = ChannelConfig {
        max_message_bytes: 50_000,
        ..Default::default()
    };
    let modest = stage.client_of(stage.builder().channel(config), &server);
    stage.with_pipeline(&modest, |pipeline| {
        for handler in [2, 3] {
            let ended = call(pipeline, handler, b"");
            let limited = matches!(ended, Err(CallError::TooLong { limit: 50_000, .. }));
            assert!(limited, "{ended:?}");
        }
        assert_eq!(call(pipeline, ECHO, b"fine").expect("an answer"), b"fine");
    });
    Ok(())
}

/// A handler that fails, panics or does not exist is an error only for its caller, on the poller and on workers.
pub fn handlers_may_fail_panic_or_be_missing(stage: &Stage<'_>) -> Outcome {
    let server = stage
        .server()
        .handle(2, |_, _| Err(HandlerError::new(77, "not today")))
        .handle(3, |_, _| panic!("a bug in a handler"))
        .handle_on_workers(4, |_, _| panic!("a bug in a slow handler"));
    let server = stage.serve(server);
    let client = stage.client(&server);
    stage.with_pipeline(&client, move |pipeline| {
        match call(pipeline, 2, b"") {
            Err(CallError::Handler { code, message }) => {
                assert_eq!((code, message.as_str()), (77, "not today"));
            }
            other => panic!("{other:?}"),
        }
        for handler in [3, 4] {
            let ended = call(pipeline, handler, b"");
            assert!(
                matches!(ended, Err(CallError::HandlerPanicked)),
                "{ended:?}"
            );
        }
        for payload in [&[][..], &[0; 100_000]] {
            let ended = call(pipeline, 999, payload);
            let unknown = matches!(ended, Err(CallError::UnknownHandler(999)));
            assert!(unknown, "{ended:?}");
        }
        assert_eq!(call(pipeline, ECHO, b"alive").expect("an answer"), b"alive");
    });
    Ok(())
}

/// One-sided operations work, or are refused with a message that says why and what to use instead.
pub fn one_sided_operations_work_or_are_refused(stage: &Stage<'_>) -> Outcome {
    let region = crate::Region::new("table", 4096).writable();
    let mut server = stage.server().region(&region);
    if let Some(device) = stage.world.device_of(stage.preset) {
        server = server.device(device);
    }
    let server = stage.serve(server);
    let preset = stage.preset;
    stage.with_client(stage.client(&server), move |client| {
        operate(client, preset);
    });
    Ok(())
}

fn operate(client: &crate::Client, preset: Preset) {
    match (client.attach("table"), preset) {
        (
            Err(error @ CallError::OneSidedUnsupported),
            Preset::Fasst | Preset::Erpc | Preset::Herd,
        ) => {
            let words = error.to_string();
            assert!(words.contains("UD") && words.contains("plain"), "{words}");
        }
        (attached, preset) if !matches!(preset, Preset::Fasst | Preset::Erpc | Preset::Herd) => {
            let table = attached.expect("a region");
            table.write(8, b"one side").expect("a WRITE");
            assert_eq!(&*table.read(8, 8).expect("a READ"), b"one side");
            let read = dunlin_verbs::thread::block_on(table.read_async(8, 8)).expect("a READ");
            assert_eq!(&*read, b"one side");
            let (local, mut driver) = client.local().expect("a lane");
            let both = async {
                let written = local.write_async(&table, 16, b"by tasks");
                written.await.expect("a WRITE");
                local.read_async(&table, 8, 16).await
            };
            let read = dunlin_verbs::thread::block_on(driver.run_until(both));
            assert_eq!(&*read.expect("a READ"), b"one sideby tasks");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(&*client.call(ECHO, b"alive").expect("an answer"), b"alive");
}
