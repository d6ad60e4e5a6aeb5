//! Code for Dunlin's typed services, of `.proto` files, in a build script. No `protoc` is needed: protox reads the
//! files, prost-build makes the messages, and each service becomes a call of `dunlin_service::service!`.
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     dunlin_build::compile_protos("proto/helloworld.proto")?;
//!     Ok(())
//! }
//! ```
//!
//! and where the code is wanted, by the name of the package:
//!
//! ```text
//! pub mod helloworld {
//!     dunlin_service::include_proto!("helloworld");
//! }
//! ```
//!
//! A package with services has `FILE_DESCRIPTOR_SET` beside them: what `dunlin_service::reflection` tells tools.
#![forbid(unsafe_code)]

mod generator;

use std::path::{Path, PathBuf};

use generator::descriptor_file;
use prost::Message;
use prost_types::FileDescriptorSet;

pub use generator::{DunlinGenerator, MESSAGE_ATTRIBUTE};

/// Why there is no code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A file is wrong: file, line and column are in the words.
    #[error("{0}")]
    Proto(String),
    /// The code could not be made or written.
    #[error("writing code for services: {0}")]
    Io(#[from] std::io::Error),
}

/// Makes code of one `.proto` file, which may import others of its directory, into `OUT_DIR`.
///
/// # Errors
/// When the file cannot be read, is wrong, or the code cannot be written.
pub fn compile_protos(proto: impl AsRef<Path>) -> Result<(), BuildError> {
    let proto = proto.as_ref();
    let include = proto.parent().unwrap_or_else(|| Path::new("."));
    configure().compile_protos(&[proto], &[include])
}

/// Settings for more files, or other code.
pub fn configure() -> Builder {
    Builder::default()
}

/// Settings, each with its default.
#[derive(Debug, Default)]
#[must_use = "code is made by compile_protos()"]
pub struct Builder {
    config: prost_build::Config,
    out_dir: Option<PathBuf>,
    prost_codec: bool,
    views: bool,
}

impl Builder {
    /// prost's settings: attributes, other types for fields, code elsewhere.
    pub fn config(mut self, set: impl FnOnce(&mut prost_build::Config)) -> Self {
        set(&mut self.config);
        self
    }

    /// Leaves messages to prost, without code of their own: for services whose messages come from other crates
    /// (`extern_path`), where nothing can be derived. The bytes on the wire are the same.
    pub fn prost_codec(mut self) -> Self {
        self.prost_codec = true;
        self
    }

    /// Gives each message `Name` a view `NameView<'a>`, too, whose texts and bytes are parts of what was received: for
    /// handlers of `ViewGreeter`'s kind, and for answers by `dunlin_service::Answer::view`.
    pub fn views(mut self) -> Self {
        self.views = true;
        self
    }

    /// Writes the code there instead of into `OUT_DIR`.
    pub fn out_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.out_dir = Some(directory.into());
        self
    }

    /// Makes the code of these files; their imports are looked for in `includes`.
    ///
    /// # Errors
    /// As for [`compile_protos`].
    pub fn compile_protos(
        mut self,
        protos: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> Result<(), BuildError> {
        // Cargo looks at these files again; outside of a build script the words go nowhere.
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
        // Without either prost-build says so.
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

/// Writes the set, without comments and places, for each package that has services.
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

/// An error of protox with the place in the file.
fn describe(error: &protox::Error) -> String {
    // The longer form says file, line and column.
    format!("{error:?}")
}
