//! Single calls.

use super::{call, pattern, Outcome, Stage, ECHO};
use crate::ChannelConfig;

/// Payloads from empty to megabytes come back unchanged, also around the limit of what is sent in one piece.
pub fn payloads_of_all_sizes_come_back(stage: &Stage<'_>) -> Outcome {
    let server = stage.serve(stage.server());
    let client = stage.client(&server);
    let real = stage.world.is_not_real().is_none();
    let longest = if real {
        ChannelConfig::default().max_message_bytes
    } else {
        1 << 20
    };
    let eager = ChannelConfig::default().eager_bytes;
    let sizes = (0..=70)
        .chain([100, 199, 1000])
        // A datagram of 4096 bytes carries 4064 in one piece.
        .chain(eager - 40..=eager + 4)
        .chain([2 * eager, 65_535, 65_536, 300_001, longest]);
    let sizes: Vec<usize> = sizes.collect();
    let count = sizes.len() as u64;
    stage.with_pipeline(&client, move |pipeline| {
        for size in sizes {
            let payload = pattern(size, size as u64);
            match call(pipeline, ECHO, &payload) {
                Ok(answer) => assert!(answer == payload, "{size} bytes came back otherwise"),
                Err(error) => panic!("{size} bytes: {error}"),
            }
        }
    });
    assert_eq!(server.requests(), count);
    stage.with_client(client, |client| {
        for size in [0, 60, 5000, 1 << 20] {
            let payload = pattern(size, 1);
            assert!(*client.call(ECHO, &payload).expect("an answer") == *payload);
        }
    });
    Ok(())
}

/// Requests filled in place arrive as they were filled.
pub fn requests_filled_in_place_arrive(stage: &Stage<'_>) -> Outcome {
    let server = stage.serve(stage.server());
    let client = stage.client(&server);
    stage.with_pipeline(&client, |pipeline| {
        for size in [0, 10, 4096, 100_000, 1 << 20] {
            let mut request = pipeline.buffer(size).expect("a buffer");
            request.copy_from_slice(&pattern(size, 3));
            let mut request = Some(request);
            while let Some(again) = request.take() {
                request = pipeline.submit_buffer(ECHO, again, 0).expect("a lane");
                pipeline
                    .poll(|_, answer| assert!(*answer.expect("an answer") == *pattern(size, 3)))
                    .expect("a lane");
            }
            while pipeline.outstanding() > 0 {
                pipeline
                    .wait(|_, answer| assert!(*answer.expect("an answer") == *pattern(size, 3)))
                    .expect("a lane");
            }
        }
    });
    Ok(())
}

/// Requests that are written directly into the send buffer arrive as they were written, each once, whatever else is
/// outstanding.
pub fn requests_written_where_they_leave_from_arrive(stage: &Stage<'_>) -> Outcome {
    let server = stage.serve(stage.server());
    let client = stage.client(&server);
    stage.with_pipeline(&client, |pipeline| {
        let sizes = [0, 1, 7, 60, 64, 1000, 4096, 5000, 100_000];
        let size_of = |tag: u64| sizes[tag as usize % sizes.len()];
        let (mut tag, mut answered) = (0, 0);
        while answered < 200 {
            let mut take = |tag, answer: Result<&[u8], _>| {
                assert!(*answer.expect("an answer") == *pattern(size_of(tag), tag));
                answered += 1;
            };
            let size = size_of(tag);
            let fill = |target: &mut [u8]| target.copy_from_slice(&pattern(size, tag));
            if tag < 200 && pipeline.submit_with(ECHO, size, tag, fill).expect("a lane") {
                tag += 1;
            } else {
                pipeline.wait(&mut take).expect("a lane");
            }
        }
        assert_eq!(pipeline.outstanding(), 0);
    });
    assert_eq!(server.requests(), 200);
    Ok(())
}
