//! Message types: from a server's reflection service, from `.proto` files, or from descriptor sets.

use std::path::{Path, PathBuf};

use dunlin_service::reflection::ReflectionClient;
use dunlin_service::{Channel, Code};
use pollster::block_on;
use prost_reflect::{DescriptorPool, MethodDescriptor};

use super::{not_called, Args};
use crate::commands::Failure;

/// The hint where the server does not describe its messages.
const HELP: &str = "use --proto FILE to take the messages from a .proto file";

/// Services and their messages.
pub(super) struct Descriptors(pub(super) DescriptorPool);

impl Descriptors {
    /// Reads the files named on the command line, or else asks the server for this name; without one, for all services
    /// that it describes.
    pub(super) fn of(
        args: &Args,
        channel: &Channel,
        symbol: Option<&str>,
    ) -> Result<Self, Failure> {
        match args.proto.is_empty() {
            true => Self::of_server(args, channel, symbol),
            false => Self::of_files(args),
        }
    }

    fn of_server(args: &Args, channel: &Channel, symbol: Option<&str>) -> Result<Self, Failure> {
        let client = ReflectionClient::new(channel.clone());
        if !client.is_there() {
            let words = "does not describe its messages: it has no reflection service";
            return Err(Failure::new(format!("the server at {} {words}", args.address)).help(HELP));
        }
        let symbols = match symbol {
            Some(symbol) => vec![symbol.to_owned()],
            None => block_on(client.services()).map_err(|status| not_called(args, &status))?,
        };
        let mut pool = DescriptorPool::new();
        for symbol in symbols {
            // Methods are asked for as their descriptors have them.
            let set = block_on(client.files_of(&symbol.replace('/', ".")));
            let set = set.map_err(|status| match status.code() {
                Code::NotFound => {
                    let words = format!("the server's reflection service does not know '{symbol}'");
                    Failure::usage(words).help(HELP)
                }
                _ => not_called(args, &status),
            })?;
            pool.decode_file_descriptor_set(&set[..])
                .map_err(Failure::new)?;
        }
        Ok(Self(pool))
    }

    fn of_files(args: &Args) -> Result<Self, Failure> {
        let mut pool = DescriptorPool::new();
        for file in &args.proto {
            let wrong = |error: &dyn std::fmt::Display| {
                Failure::usage(format!("{}: {error}", file.display()))
            };
            match file
                .extension()
                .is_some_and(|extension| extension == "proto")
            {
                true => {
                    let set = compile(file, &args.include)?;
                    pool.add_file_descriptor_set(set)
                        .map_err(|error| wrong(&error))?;
                }
                false => {
                    let bytes = std::fs::read(file).map_err(|error| wrong(&error))?;
                    pool.decode_file_descriptor_set(&bytes[..])
                        .map_err(|error| {
                            wrong(&format_args!(
                                "not a .proto file or a set of descriptors: {error}"
                            ))
                        })?;
                }
            }
        }
        Ok(Self(pool))
    }

    pub(super) fn has_service(&self, name: &str) -> bool {
        self.0.get_service_by_name(name).is_some()
    }

    /// A method that the server has.
    pub(super) fn method(&self, service: &str, method: &str) -> Result<MethodDescriptor, Failure> {
        let known = self.0.get_service_by_name(service);
        let found =
            known.and_then(|service| service.methods().find(|other| other.name() == method));
        found.ok_or_else(|| {
            let words =
                format!("the descriptors lack the method {service}/{method}, which the server has");
            Failure::usage(words).help("--proto is from another version of the service")
        })
    }
}

fn compile(
    file: &Path,
    includes: &[PathBuf],
) -> Result<prost_reflect::prost_types::FileDescriptorSet, Failure> {
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut all: Vec<&Path> = includes.iter().map(PathBuf::as_path).collect();
    all.push(folder.unwrap_or_else(|| Path::new(".")));
    // The longer form says file, line and column.
    protox::compile([file], all).map_err(|error| Failure::usage(format!("{error:?}")))
}
