//! Calls methods by their names, with JSON.

use std::future::{poll_fn, Future};
use std::pin::{pin, Pin};
use std::task::Poll;

use dunlin::Client;
use dunlin_service::{Channel, Code, Kind, MetadataMap, Request, Status, Streaming};
use pollster::block_on;
use prost_reflect::MethodDescriptor;
use serde_json::json;

use super::descriptors::Descriptors;
use super::messages::{self, Broken, Input, Requests};
use super::{failed, not_called, print_status, show, Args};
use crate::commands::Failure;
use crate::output;

/// The service that describes the others.
const REFLECTION: &str = "grpc.reflection.v1.ServerReflection";

/// Lists, describes or calls.
pub(super) fn run(args: &Args, client: Client) -> Result<(), Failure> {
    let longest = client.max_message_bytes().map_err(Failure::new)?;
    let channel = Channel::from_client_blocking(client).map_err(|status| refused(args, &status))?;
    let methods = Methods(channel.methods());
    let what = args
        .what
        .as_deref()
        .unwrap_or_default()
        .trim_start_matches('/');
    if args.list {
        return list(args, &methods, what);
    }
    if args.describe {
        let symbol = Some(what).filter(|what| !what.is_empty());
        let descriptors = Descriptors::of(args, &channel, symbol)?;
        let names = match symbol {
            Some(symbol) => vec![symbol],
            None => {
                let mut services = methods.services();
                // It is described where its name is given.
                let wanted = |name: &str| name != REFLECTION && descriptors.has_service(name);
                services.retain(|service| wanted(service));
                services
            }
        };
        return show::describe(&descriptors, &names, args.json);
    }
    let (path, kind) = methods.find(what)?;
    let (service, name) = split(&path).unwrap_or_default();
    let descriptors = Descriptors::of(args, &channel, Some(service))?;
    let method = descriptors.method(service, name)?;
    if kind_of(&method) != kind {
        let words = format!(
            "{what} is {kind:?} at the server but {:?} here",
            kind_of(&method)
        );
        return Err(Failure::usage(words).help("--proto is from another version of the service"));
    }
    let input = Input::new(&args.payload, method.input(), longest);
    let call = Call {
        args,
        channel: &channel,
        path: &path,
        method,
    };
    match kind {
        Kind::Unary => call.unary(input),
        kind => call.streaming(kind, input),
    }
}

/// The failure for a server without typed services.
fn refused(args: &Args, status: &Status) -> Failure {
    match status.code() {
        Code::Unimplemented => Failure::usage(format!("{} at {}", status.message(), args.address))
            .help("handlers are called by number: `dunlin call ADDRESS 1 hello`"),
        _ => not_called(args, status),
    }
}

/// The kind of a method according to its descriptor.
fn kind_of(method: &MethodDescriptor) -> Kind {
    match (method.is_client_streaming(), method.is_server_streaming()) {
        (false, false) => Kind::Unary,
        (false, true) => Kind::ServerStreaming,
        (true, false) => Kind::ClientStreaming,
        (true, true) => Kind::Bidirectional,
    }
}

/// Names and kinds of all methods of the server.
pub(super) struct Methods(Vec<(String, Kind)>);

impl Methods {
    /// Names of services, in their order.
    pub(super) fn services(&self) -> Vec<&str> {
        let services = self.0.iter().filter_map(|(path, _)| split(path));
        let mut services: Vec<&str> = services.map(|(service, _)| service).collect();
        services.dedup();
        services
    }

    /// Methods of a service: their names and kinds.
    fn of(&self, service: &str) -> Vec<(&str, Kind)> {
        let all = self
            .0
            .iter()
            .filter_map(|(path, kind)| Some((split(path)?, *kind)));
        all.filter(|((of, _), _)| *of == service)
            .map(|((_, method), kind)| (method, kind))
            .collect()
    }

    /// The path and the kind of `SERVICE/METHOD`.
    fn find(&self, name: &str) -> Result<(String, Kind), Failure> {
        let path = format!("/{name}");
        if let Some((path, kind)) = self.0.iter().find(|(other, _)| *other == path) {
            return Ok((path.clone(), *kind));
        }
        let (service, method) = name.split_once('/').unwrap_or((name, ""));
        let methods: Vec<&str> = self
            .of(service)
            .into_iter()
            .map(|(method, _)| method)
            .collect();
        Err(match methods.is_empty() {
            true => self.no_service(service),
            false => Failure::usage(format!("the service {service} has no method '{method}'"))
                .help(format!("it has {}", methods.join(", "))),
        })
    }

    pub(super) fn no_service(&self, service: &str) -> Failure {
        let failure = Failure::usage(format!("the server has no service '{service}'"));
        match self.services() {
            none if none.is_empty() => failure.help("the server has no typed services"),
            there => failure.help(format!("it has {}", there.join(", "))),
        }
    }
}

/// Service and method of a path.
fn split(path: &str) -> Option<(&str, &str)> {
    path.trim_start_matches('/').split_once('/')
}

fn list(args: &Args, methods: &Methods, service: &str) -> Result<(), Failure> {
    if service.is_empty() {
        let services = methods.services();
        return match args.json {
            true => output::print_message(&json!({ "services": services })),
            false => output::write(
                services
                    .iter()
                    .map(|name| format!("{name}\n"))
                    .collect::<String>()
                    .as_bytes(),
            ),
        };
    }
    let of = methods.of(service);
    if of.is_empty() {
        return Err(methods.no_service(service));
    }
    if args.json {
        let entry = |(name, kind): &(&str, Kind)| json!({ "name": name, "kind": words_of(*kind) });
        let entries: Vec<_> = of.iter().map(entry).collect();
        return output::print_message(&json!({ "service": service, "methods": entries }));
    }
    let line = |(name, kind): &(&str, Kind)| format!("{service}/{name}  ({})\n", words_of(*kind));
    output::write(of.iter().map(line).collect::<String>().as_bytes())
}

fn words_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Unary => "unary",
        Kind::ServerStreaming => "stream of responses",
        Kind::ClientStreaming => "stream of requests",
        Kind::Bidirectional => "stream both ways",
    }
}

struct Call<'a> {
    args: &'a Args,
    channel: &'a Channel,
    path: &'a str,
    method: MethodDescriptor,
}

impl Call<'_> {
    fn request<T>(&self, message: T) -> Result<Request<T>, Failure> {
        let mut request = Request::new(message);
        for (name, value) in &self.args.header {
            let added = request
                .metadata_mut()
                .append(name.clone(), value.as_bytes());
            added.map_err(Failure::usage)?;
        }
        if let Some(deadline) = self.args.connect.deadline() {
            request.set_timeout(deadline);
        }
        Ok(request)
    }

    fn unary(&self, input: Input) -> Result<(), Failure> {
        let message = input.only()?;
        let answer = self
            .channel
            .unary_bytes_blocking(self.path, self.request(message)?);
        let answer = answer.map_err(|status| self.failed(&status))?;
        self.note(answer.metadata());
        self.print(answer.get_ref())
    }

    fn streaming(&self, kind: Kind, input: Input) -> Result<(), Failure> {
        let outgoing = match kind {
            Kind::ServerStreaming => input.one()?,
            _ => input.many()?,
        };
        // Behind it in what follows: the call, which is given up before its requests end.
        let mut broken = Breaks::of(outgoing.broken);
        let request = self.request(outgoing.messages)?;
        block_on(async {
            let call = self.channel.streaming_bytes(self.path, kind, request);
            let answer = unless_broken(&mut broken, call).await?;
            let answer = answer.map_err(|status| self.failed(&status))?;
            self.note(answer.metadata());
            let mut answers = answer.into_inner();
            while let Some(message) = self.next(&mut broken, &mut answers).await? {
                self.print(&message)?;
            }
            if let Some(metadata) = answers.trailers() {
                self.note(&metadata);
            }
            Ok(())
        })
    }

    async fn next(
        &self,
        broken: &mut Breaks,
        answers: &mut Streaming<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let message = unless_broken(broken, answers.message()).await?;
        message.map_err(|status| self.failed(&status))
    }

    /// Prints metadata on standard error with `--verbose`.
    fn note(&self, metadata: &MetadataMap) {
        if self.args.verbose {
            for (name, value) in metadata.iter() {
                output::note(format_args!("{name}={}", String::from_utf8_lossy(value)));
            }
        }
    }

    fn print(&self, message: &[u8]) -> Result<(), Failure> {
        output::print(messages::to_json(
            self.method.output(),
            message,
            !self.args.json,
        )?)
    }

    /// The failure for a call that ended with a status.
    fn failed(&self, status: &Status) -> Failure {
        self.note(status.metadata());
        let failure = failed(status);
        if !self.args.json {
            return failure;
        }
        print_status(status).err().unwrap_or(failure)
    }
}

/// Watches for invalid standard input.
struct Breaks {
    waiting: Option<Broken>,
    /// The sending end of the request stream that broke off.
    kept: Option<Requests>,
}

impl Breaks {
    fn of(waiting: Option<Broken>) -> Self {
        Self {
            waiting,
            kept: None,
        }
    }
}

/// Runs a future unless standard input turns out to be invalid meanwhile: then the future is dropped, and the call with
/// it.
async fn unless_broken<T>(
    broken: &mut Breaks,
    work: impl Future<Output = T>,
) -> Result<T, Failure> {
    let mut work = pin!(work);
    poll_fn(|context| {
        if let Some(waiting) = &mut broken.waiting {
            match Pin::new(waiting).poll(context) {
                Poll::Ready(Ok((failure, requests))) => {
                    broken.kept = Some(requests);
                    return Poll::Ready(Err(failure));
                }
                Poll::Ready(Err(_)) => broken.waiting = None,
                Poll::Pending => {}
            }
        }
        work.as_mut().poll(context).map(Ok)
    })
    .await
}
