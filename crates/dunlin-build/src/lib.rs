//! Generates code for Dunlin's typed services from `.proto` files, in a build script. No `protoc` is needed: protox
//! parses the files, prost-build generates the messages, and each service becomes an invocation of
//! `dunlin_service::service!`.
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     dunlin_build::compile_protos("proto/helloworld.proto")?;
//!     Ok(())
//! }
//! ```
//!
//! The code is included by the name of the package:
//!
//! ```text
//! pub mod helloworld {
//!     dunlin_service::include_proto!("helloworld");
//! }
//! ```
//!
//! A package with services also has a `FILE_DESCRIPTOR_SET`, which `dunlin_service::reflection` serves to tools.
#![forbid(unsafe_code)]

mod generator;

use std::path::{Path, PathBuf};

use generator::descriptor_file;
use prost::Message;
use prost_types::FileDescriptorSet;

pub use generator::{DunlinGenerator, MESSAGE_ATTRIBUTE};

/// Code could not be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A file has an error; the text contains file, line and column.
    #[error("{0}")]
    Proto(String),
    /// The code could not be generated or written.
    #[error("cannot write code for services: {0}")]
    Io(#[from] std::io::Error),
}

/// Generates code for one `.proto` file, which may import others from its directory, into `OUT_DIR`.
///
/// # Errors
/// If the file cannot be read or has errors, or the code cannot be written.
pub fn compile_protos(proto: impl AsRef<Path>) -> Result<(), BuildError> {
    let proto = proto.as_ref();
    let include = proto.parent().unwrap_or_else(|| Path::new("."));
    configure().compile_protos(&[proto], &[include])
}

/// Returns settings, for several files or for other options.
pub fn configure() -> Builder {
    Builder::default()
}

/// Settings, with defaults.
#[derive(Debug, Default)]
#[must_use = "no code is generated until compile_protos() is called"]
pub struct Builder {
    config: prost_build::Config,
    out_dir: Option<PathBuf>,
    prost_codec: bool,
    views: bool,
}

impl Builder {
    /// Changes prost's settings: attributes, other types for fields, another place for the code.
    pub fn config(mut self, set: impl FnOnce(&mut prost_build::Config)) -> Self {
        set(&mut self.config);
        self
    }

    /// Leaves messages to prost, without generated code of ours: for services whose messages come from other crates
    /// (`extern_path`), where nothing can be derived. The bytes on the wire are the same.
    pub fn prost_codec(mut self) -> Self {
        self.prost_codec = true;
        self
    }

    /// Also generates, for each message `Name`, a view `NameView<'a>`, whose texts and byte strings are parts of the
    /// received bytes: for handlers of a `ViewGreeter`, and for answers read with `dunlin_service::Answer::view`.
    pub fn views(mut self) -> Self {
        self.views = true;
        self
    }

    /// Sets the directory for the code, instead of `OUT_DIR`.
    pub fn out_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.out_dir = Some(directory.into());
        self
    }

    /// Generates the code for these files; their imports are searched for in `includes`.
    ///
    /// # Errors
    /// As for [`compile_protos`].
    pub fn compile_protos(
        mut self,
        protos: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> Result<(), BuildError> {
        // Makes Cargo watch these files; outside of a build script the output would have no effect.
        if std::env::var_os("OUT_DIR").is_some() {
            for proto in protos {
                println!("cargo:rerun-if-changed={}", proto.as_ref().display());
            }
            for include in includes {
                println!("cargo:rerun-if-changed={}", include.as_ref().display());
            }
        }
        let descriptors = protox::compile(protos, includes)
            .map_err(|error| BuildError::Proto(describe(&error)))?;
        let mut generator = DunlinGenerator::default();
        if let Some(directory) = &self.out_dir {
            std::fs::create_dir_all(directory)?;
            self.config.out_dir(directory);
        }
        let out_dir = std::env::var_os("OUT_DIR").map(PathBuf::from);
        // If neither is set, prost-build reports the error.
        if let Some(directory) = self.out_dir.as_ref().or(out_dir.as_ref()) {
            write_descriptors(&descriptors, directory)?;
            generator = generator.with_descriptors();
        }
        if self.prost_codec {
            generator = generator.prost_codec();
        } else {
            self.config.message_attribute(".", MESSAGE_ATTRIBUTE);
            if self.views {
                self.config.message_attribute(".", "#[protobuf(view)]");
            }
        }
        self.config.service_generator(Box::new(generator));
        self.config.compile_fds(descriptors)?;
        Ok(())
    }
}

/// Writes the descriptor set, without comments and source positions, for each package that has services.
fn write_descriptors(descriptors: &FileDescriptorSet, directory: &Path) -> std::io::Result<()> {
    let mut bare = descriptors.clone();
    for file in &mut bare.file {
        file.source_code_info = None;
    }
    let bytes = bare.encode_to_vec();
    for file in bare.file.iter().filter(|file| !file.service.is_empty()) {
        std::fs::write(directory.join(descriptor_file(file.package())), &bytes)?;
    }
    Ok(())
}

/// Formats an error of protox with its position in the file.
fn describe(error: &protox::Error) -> String {
    // The longer format contains file, line and column.
    format!("{error:?}")
}
