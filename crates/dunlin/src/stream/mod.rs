//! Byte streams by address: [`Stream::connect`] and [`StreamBuilder::bind`], over the best device that both sides have.
//!
//! A [`Stream`] behaves like a TCP stream, and implements the traits of tokio and of futures with the features of these
//! names, so that software for TCP can use it: hyper and tonic among others. It consists of two rings of RB², one for
//! each direction.

use std::io;
use std::task::{Context, Poll};

use dunlin_bootstrap::Capability;
use dunlin_ring::{stream_config, RingConfig, StreamOffer, UnconnectedStream, STREAM_OFFER_BYTES};
use dunlin_rpc::{capabilities_towards, visit_device, DeviceVisitor};
use dunlin_verbs::Device;

use crate::meeting::{self, settings_of_terms, Chosen, Listener, MeetError, Terms};

/// The kind that a client requests in the handshake.
const KIND: &str = "stream";

/// A stream over any device: one virtual call per poll.
trait AnyStream: Send + Unpin + std::fmt::Debug {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        target: &mut [u8],
    ) -> Poll<io::Result<usize>>;
    fn poll_write(&mut self, context: &mut Context<'_>, source: &[u8]) -> Poll<io::Result<usize>>;
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl<D: Device> AnyStream for dunlin_ring::Stream<D> {
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        target: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Self::poll_read(self, context, target)
    }

    fn poll_write(&mut self, context: &mut Context<'_>, source: &[u8]) -> Poll<io::Result<usize>> {
        Self::poll_write(self, context, source)
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_flush(self, context)
    }

    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_shutdown(self, context)
    }
}

/// A byte stream to another process.
///
/// Dropping it tells the peer that the stream has ended, and how much was read, and blocks until that has arrived, for
/// 100 ms at most; it does not block after [`Stream::poll_shutdown`] and the end of the peer's data.
#[derive(Debug)]
pub struct Stream {
    stream: Box<dyn AnyStream>,
    chosen: Chosen,
}

impl Stream {
    /// Connects to a listener at `dunlin://host:port` with the default settings; blocks for at most 5 s in each step.
    ///
    /// # Errors
    /// Says which step failed, and what would help.
    pub fn connect(address: &str) -> Result<Self, MeetError> {
        Self::builder().connect(address)
    }

    /// Returns a builder with settings for connecting and listening.
    pub fn builder() -> StreamBuilder {
        StreamBuilder::default()
    }

    /// Listens at `dunlin://host:port` with the default settings; with port 0 the system chooses one.
    ///
    /// # Errors
    /// When the port is not available, or no device can be used.
    pub fn bind(address: &str) -> Result<Listener<Self>, MeetError> {
        Self::builder().bind(address)
    }

    /// The name of its device.
    pub fn device(&self) -> &str {
        &self.chosen.device
    }

    /// Why that device was chosen. The listening side knows only that the client chose it.
    pub fn why(&self) -> &'static str {
        self.chosen.why
    }

    /// Reads available bytes into `target` and returns their number; zero is the end of the peer's data.
    ///
    /// # Errors
    /// `ConnectionReset` when the peer is gone without ending the stream, `InvalidData` when it violated the ring's
    /// protocol.
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        target: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_read(context, target)
    }

    /// Writes some of `source` and returns the number of bytes. Pending while the peer has not read enough.
    ///
    /// # Errors
    /// `BrokenPipe` when the peer is gone or this side has shut down.
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        source: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write(context, source)
    }

    /// Waits until everything that was written has been handed to the device.
    ///
    /// # Errors
    /// As for [`Stream::poll_write`].
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush(context)
    }

    /// Tells the peer that nothing more will be written, and waits until that has arrived. Reading remains possible. If
    /// the peer is gone by then, that is not an error provided that everything that was written has arrived.
    ///
    /// # Errors
    /// As for [`Stream::poll_write`]; also when what was written before is not known to have arrived.
    pub fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_shutdown(context)
    }
}

/// Settings of streams, each with its default. Both sides of a stream need the same ring configuration and the same
/// secret.
#[derive(Clone, Debug)]
#[must_use = "a stream does nothing until connect() or bind() is called"]
pub struct StreamBuilder {
    terms: Terms,
    config: RingConfig,
}

impl Default for StreamBuilder {
    fn default() -> Self {
        Self {
            terms: Terms::default(),
            config: stream_config(),
        }
    }
}

impl StreamBuilder {
    /// Uses this device; connecting or listening fails if it cannot be used.
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.terms.device = Some(name.into());
        self
    }

    settings_of_terms!();

    /// The configuration of the rings; [`stream_config`] by default.
    pub fn rings(mut self, config: RingConfig) -> Self {
        self.config = config;
        self
    }

    /// Connects to a listener.
    ///
    /// # Errors
    /// As for [`Stream::connect`].
    pub fn connect(self, address: &str) -> Result<Stream, MeetError> {
        let Self { terms, config } = self;
        let parsed = address.parse()?;
        let (stream, chosen) = meeting::connect(
            address,
            KIND,
            &terms,
            capabilities(terms.device.as_deref(), Some(address))?,
            |device| visit_device(device, Some(&parsed), Open(config, None))?,
            |end: Box<dyn AnyEnd>, theirs| end.join(theirs),
        )?;
        Ok(Stream { stream, chosen })
    }

    /// Listens.
    ///
    /// # Errors
    /// As for [`Stream::bind`].
    pub fn bind(self, address: &str) -> Result<Listener<Stream>, MeetError> {
        let Self { terms, config } = self;
        let capabilities = capabilities(terms.device.as_deref(), None)?;
        Listener::bind(
            address,
            KIND,
            &terms,
            capabilities,
            move |device, theirs| {
                let peer = StreamOffer::decode(theirs);
                visit_device(device, None, Confirm(peer))??;
                let (end, offer) = visit_device(device, None, Open(config, Some(peer)))??;
                let stream = Stream {
                    stream: end.join(theirs)?,
                    chosen: Chosen {
                        device: device.to_owned(),
                        why: "negotiated with the client",
                    },
                };
                Ok((stream, offer))
            },
        )
    }
}

/// One unconnected end over any device.
trait AnyEnd {
    fn join(
        self: Box<Self>,
        theirs: &[u8; STREAM_OFFER_BYTES],
    ) -> Result<Box<dyn AnyStream>, MeetError>;
}

impl<D: Device> AnyEnd for UnconnectedStream<D> {
    fn join(
        self: Box<Self>,
        theirs: &[u8; STREAM_OFFER_BYTES],
    ) -> Result<Box<dyn AnyStream>, MeetError> {
        Ok(Box::new(self.connect(&StreamOffer::decode(theirs))?))
    }
}

/// Asks the client's device to confirm that the queue pair is the client's own.
struct Confirm(StreamOffer);

impl DeviceVisitor for Confirm {
    type Output = Result<(), MeetError>;

    fn visit<D: Device>(self, device: &D) -> Self::Output {
        let StreamOffer { producer, consumer } = self.0;
        meeting::confirm(device, &producer.address)?;
        meeting::confirm(device, &consumer.address)
    }
}

/// Creates an end; for a listener, with the offer of the peer.
struct Open(RingConfig, Option<StreamOffer>);

impl DeviceVisitor for Open {
    type Output = Result<(Box<dyn AnyEnd>, [u8; STREAM_OFFER_BYTES]), MeetError>;

    fn visit<D: Device>(self, device: &D) -> Self::Output {
        let end = UnconnectedStream::new(device, &self.0)?;
        let mut offer = end.offer();
        if let Some(peer) = &self.1 {
            for own in [&mut offer.producer, &mut offer.consumer] {
                own.address = device.address_for(own.address, &peer.producer.address);
            }
        }
        Ok((Box::new(end), offer.encode()))
    }
}

/// Returns all devices that can be used here, or only the requested one. Streams use write twice, so the order in which
/// a device places bytes does not matter.
fn capabilities(only: Option<&str>, towards: Option<&str>) -> Result<Vec<Capability>, MeetError> {
    let towards = towards.map(str::parse).transpose()?;
    let described = capabilities_towards(towards.as_ref());
    let (mut found, missing) = described.map_err(|source| MeetError::Io {
        call: "determining this host's identity",
        source,
    })?;
    let names: Vec<String> = found.iter().map(|one| one.device.clone()).collect();
    found.retain(|one| only.is_none_or(|only| one.device == only || one.kind() == only));
    if found.is_empty() {
        let there = names.into_iter().chain(missing).collect::<Vec<_>>();
        return Err(MeetError::Device(there.join("; ")));
    }
    Ok(found)
}

#[cfg(feature = "futures")]
dunlin_ring::implement_futures!([] Stream);
#[cfg(feature = "tokio")]
dunlin_ring::implement_tokio!([] Stream);
