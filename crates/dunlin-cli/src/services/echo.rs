//! The echo service: returns what it is sent, and has a call for measurements whose response may have any size.

use dunlin::{HandlerError, HandlerId, Region, ServerBuilder};

/// Answers with the request's own bytes.
pub const ECHO: HandlerId = 1;
/// Answers with as many bytes as given by the first four bytes of the request, little endian. For measurements.
pub const MEASURE: HandlerId = 2;

/// Name of the region that clients may read and write, if there is one.
pub const REGION: &str = "memory";

/// Adds the handlers, and a region of this size if one is given.
pub fn on(server: ServerBuilder, region: Option<usize>) -> ServerBuilder {
    let server = match region {
        Some(bytes) => server.region(&Region::new(REGION, bytes).writable()),
        None => server,
    };
    server
        .handle(ECHO, |request, reply| reply.write(request.payload()))
        .handle(MEASURE, |request, reply| {
            let Some((size, _)) = request.payload().split_first_chunk::<4>() else {
                return Err(HandlerError::new(
                    1,
                    "the first four bytes must be the length of the response",
                ));
            };
            let size = u32::from_le_bytes(*size) as usize;
            let copied = size.min(request.payload().len());
            if size == copied {
                return reply.write(&request.payload()[..size]);
            }
            reply.in_place(size).map(drop)
        })
}
