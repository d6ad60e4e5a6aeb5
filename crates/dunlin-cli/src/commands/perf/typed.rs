//! `dunlin perf typed`: measures calls of a typed service between two processes, comparable with `perf rpc`.

use std::marker::PhantomData;
use std::time::Duration;

use dunlin::{Address, Client};
use dunlin_service::codec::Protobuf;
use dunlin_service::protobuf::{Message, Viewed};
use dunlin_service::{Answer, Channel, Method, Pipeline, Request, Routes, Status};

use super::load::{in_slices, no_pipeline, Load, Loader, Shape, SLICE, WARM_UP};
use crate::affinity;
use crate::commands::{connect, Failure};
use crate::input::parse_bytes;
use crate::interrupt;
use crate::output;
use crate::report::{check_errors, Report, Setting};
use crate::services;
use crate::services::child::ServerProcess;
use crate::services::typed::{
    MeasureEcho, MeasureEchoBytes, MeasureOwnedEcho, MeasureOwnedEchoBytes,
};

/// Measure calls of a typed service between two processes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Protobuf messages with one field of bytes, whose encoded length is --size, are echoed: client and server each decode \
and encode one message per call. Both read it in place, as a view; with --owned they convert it to an owned message. \
With --field text the field is text, which both sides check for UTF-8. Everything else is as in `dunlin perf rpc`, so \
that the two can be compared.\n\n\
Examples:\n  \
  dunlin perf typed                              round trip of 64 bytes, blocking client\n  \
  dunlin perf typed --outstanding 32 --json      rate, with a typed pipeline; compare with\n  \
  dunlin perf rpc --outstanding 32 --json")]
pub struct Args {
    /// Encoded bytes of a request and of its response
    #[arg(long, default_value_t = 64, value_parser = parse_bytes(4..=(4 << 20)))]
    size: u32,
    /// Calls outstanding per thread
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    outstanding: u32,
    /// Client threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Seconds to measure
    #[arg(long, default_value = "3", value_parser = super::parse_seconds, allow_negative_numbers = true)]
    seconds: Duration,
    /// Type of the message's field
    #[arg(long, default_value = "bytes")]
    field: Field,
    /// Read requests and responses as owned messages instead of views
    #[arg(long)]
    owned: bool,
    /// Use this server instead of starting one (`dunlin serve echo`)
    #[arg(long)]
    address: Option<Address>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: connect::Options,
}

/// Kinds of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Field {
    Bytes,
    Text,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let cores = affinity::cores();
    let server = match &args.address {
        Some(_) => None,
        None => {
            let pinned = cores.get(1).copied();
            let arguments = super::server_arguments(pinned.as_slice(), args.connect.device());
            Some(ServerProcess::start("echo", &arguments)?)
        }
    };
    let address = args.address.as_ref();
    let address = address.or(server.as_ref().map(ServerProcess::address));
    let address = address.ok_or_else(|| Failure::new("there is no server"))?;
    let client = args.connect.connect(address)?;
    let channel = Channel::from_client_blocking(client.clone()).map_err(Failure::new)?;
    match (args.field, args.owned) {
        (Field::Bytes, false) => {
            measure::<Views<MeasureEchoBytes>>(args, cores, &client, &channel)?
        }
        (Field::Bytes, true) => {
            measure::<Owned<MeasureOwnedEchoBytes>>(args, cores, &client, &channel)?
        }
        (Field::Text, false) => measure::<Views<MeasureEcho>>(args, cores, &client, &channel)?,
        (Field::Text, true) => measure::<Owned<MeasureOwnedEcho>>(args, cores, &client, &channel)?,
    }
    client.close();
    server.map(ServerProcess::stop).transpose()?;
    interrupt::check()
}

fn measure<E: Reads>(
    args: &Args,
    cores: &[usize],
    client: &Client,
    channel: &Channel,
) -> Result<(), Failure> {
    let shape = Shape {
        size: args.size as usize,
        response: args.size,
        outstanding: args.outstanding as usize,
        warm_up: WARM_UP,
    };
    let threads = (0..usize::from(args.threads))
        .map(|i| {
            let core = (i == 0).then(|| cores.first().copied()).flatten();
            Loader::start(vec![Typed::<E>::new(channel, shape)], core)
        })
        .collect::<Result<Vec<_>, _>>()?;
    interrupt::listen()?;
    let bar = output::progress_bar();
    bar.set_message("perf typed");
    let progress = |done: f64| bar.set_position((done * 1000.0) as u64);
    let tally = in_slices(&threads, args.seconds, SLICE, progress)?;
    bar.finish_and_clear();
    let report = Report::new(setting(client, shape, threads.len()), &tally);
    drop(threads);
    output::print_report(&report, args.json)?;
    check_errors(report.errors, "calls", report.first_error.as_ref())
}

fn setting(client: &Client, shape: Shape, threads: usize) -> Setting {
    Setting {
        device: client.info().device,
        preset: client.info().preset.to_string(),
        threads,
        outstanding: shape.outstanding,
        size: shape.size,
        response_size: shape.response_size(),
    }
}

/// A method that returns its request.
trait Echo: Method<Request = Self::Message, Response = Self::Message, Codec = Protobuf> {
    type Message: services::typed::OfLength + Viewed + Clone + Send + Sync;
}

impl<T, M> Echo for M
where
    T: services::typed::OfLength + Viewed + Clone + Send + Sync,
    M: Method<Request = T, Response = T, Codec = Protobuf>,
{
    type Message = T;
}

/// How messages are read.
trait Reads: Send + 'static {
    type Method: Echo;

    /// Encoded bytes of a response's message.
    fn length(answer: Answer<'_>) -> Result<usize, Status>;
}

/// In place, as views of the received bytes.
struct Views<M>(PhantomData<M>);

impl<M: Echo> Reads for Views<M> {
    type Method = M;

    #[inline]
    fn length(answer: Answer<'_>) -> Result<usize, Status> {
        Ok(answer.view::<M>()?.encoded_len())
    }
}

/// As owned messages.
struct Owned<M>(PhantomData<M>);

impl<M: Echo> Reads for Owned<M> {
    type Method = M;

    #[inline]
    fn length(answer: Answer<'_>) -> Result<usize, Status> {
        answer.with::<M, _>(Message::encoded_len)
    }
}

/// The type of the messages.
type MessageOf<E> = <<E as Reads>::Method as Echo>::Message;

/// Typed calls: a blocking one, or a typed pipeline for more.
struct Typed<E: Reads> {
    channel: Channel,
    routes: Routes,
    shape: Shape,
    message: MessageOf<E>,
    pipeline: Option<Pipeline>,
    first_error: Option<String>,
    reads: PhantomData<E>,
}

impl<E: Reads> Typed<E> {
    fn new(channel: &Channel, shape: Shape) -> Self {
        Self {
            channel: channel.clone(),
            routes: Routes::new(1),
            shape,
            message: services::typed::OfLength::of_encoded_len(shape.size),
            pipeline: None,
            first_error: None,
            reads: PhantomData,
        }
    }
}

impl<E: Reads> Load for Typed<E> {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn call(&mut self) -> Result<usize, Failure> {
        let request = Request::new(self.message.clone());
        let response = self
            .channel
            .unary_blocking::<E::Method>(&self.routes, request)
            .map_err(Failure::new)?;
        Ok(response.get_ref().encoded_len())
    }

    fn open(&mut self) -> Result<(), Failure> {
        if self.pipeline.is_none() {
            let pipeline = self.channel.pipeline(self.shape.outstanding);
            self.pipeline = Some(pipeline.map_err(Failure::new)?);
        }
        Ok(())
    }

    #[inline]
    fn outstanding(&self) -> usize {
        self.pipeline.as_ref().map_or(0, Pipeline::outstanding)
    }

    #[inline]
    fn submit(&mut self, tag: u64) -> Result<bool, Failure> {
        let pipeline = self.pipeline.as_mut().ok_or_else(no_pipeline)?;
        let submitted = pipeline.submit::<E::Method>(&self.message, tag);
        if let Ok(submitted) = &submitted {
            return Ok(*submitted);
        }
        submitted.map_err(Failure::new)
    }

    #[inline]
    fn wait(&mut self, mut take: impl FnMut(u64, Option<usize>)) -> Result<(), Failure> {
        let pipeline = self.pipeline.as_mut().ok_or_else(no_pipeline)?;
        let first = &mut self.first_error;
        let waited = pipeline.wait(|tag, answer| {
            let length = answer.and_then(E::length);
            let length = length.map_err(|status| first.get_or_insert_with(|| status.to_string()));
            take(tag, length.ok());
        });
        waited.map(drop).map_err(Failure::new)
    }

    fn first_error(&mut self) -> &mut Option<String> {
        &mut self.first_error
    }
}
