//! The service generator that prost-build calls for the code of each service.

use std::fmt::Write;

use prost_build::{Comments, Method, Service, ServiceGenerator};

/// The attribute that messages must have if their services use the codec `Protobuf`:
/// `config.message_attribute(".", MESSAGE_ATTRIBUTE)`.
pub const MESSAGE_ATTRIBUTE: &str = "#[derive(::dunlin_service::protobuf::Message)]";

/// Writes an invocation of `dunlin_service::service!` for each service. [`crate::configure`] uses it; used directly, it
/// is for programs that configure prost-build themselves, and that give messages their [`MESSAGE_ATTRIBUTE`].
#[derive(Clone, Copy, Debug, Default)]
pub struct DunlinGenerator {
    codec: Codec,
    /// Whether the descriptors are in files next to the code.
    has_descriptors: bool,
}

/// The name of the file with the descriptors of a package with services, next to its code.
pub(crate) fn descriptor_file(package: &str) -> String {
    match package {
        "" => "_.descriptors.bin".to_owned(),
        package => format!("{package}.descriptors.bin"),
    }
}

/// The codec of the generated services.
#[derive(Clone, Copy, Debug, Default)]
enum Codec {
    #[default]
    Protobuf,
    Prost,
}

impl DunlinGenerator {
    /// Leaves messages to prost. See [`crate::Builder::prost_codec`].
    #[must_use]
    pub fn prost_codec(self) -> Self {
        Self {
            codec: Codec::Prost,
            ..self
        }
    }

    /// Includes the files named by [`descriptor_file`] in the code.
    pub(crate) fn with_descriptors(self) -> Self {
        Self {
            has_descriptors: true,
            ..self
        }
    }
}

impl ServiceGenerator for DunlinGenerator {
    fn generate(&mut self, service: Service, code: &mut String) {
        let name = match service.package.as_str() {
            "" => service.proto_name.clone(),
            package => format!("{package}.{}", service.proto_name),
        };
        // Writing to a string cannot fail.
        let _ = write_service(code, &name, &service, self.codec);
    }

    fn finalize_package(&mut self, package: &str, code: &mut String) {
        if self.has_descriptors {
            let file = descriptor_file(package);
            let _ = write!(
                code,
                "/// The `google.protobuf.FileDescriptorSet` of this package, with all that it imports, for the \
                 reflection service.\n\
                 #[allow(dead_code)]\n\
                 pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!({file:?});\n"
            );
        }
    }
}

fn write_service(
    code: &mut String,
    name: &str,
    service: &Service,
    codec: Codec,
) -> std::fmt::Result {
    writeln!(code, "dunlin_service::service! {{")?;
    write_comments(code, "    ", &service.comments, name)?;
    writeln!(
        code,
        "    pub service {} = {name:?} with dunlin_service::codec::{codec:?} {{",
        service.name
    )?;
    for method in &service.methods {
        write_comments(code, "        ", &method.comments, &method.proto_name)?;
        writeln!(code, "        {}", rpc(method))?;
    }
    writeln!(code, "    }}\n}}")
}

fn rpc(method: &Method) -> String {
    let stream = |streams| if streams { "stream " } else { "" };
    format!(
        "rpc {} as {}({}{}) -> {}{};",
        method.name,
        method.proto_name,
        stream(method.client_streaming),
        method.input_type,
        stream(method.server_streaming),
        method.output_type
    )
}

/// Writes the comments of the file as attributes. Code fences are replaced, so that rustdoc does not compile the code.
fn write_comments(
    code: &mut String,
    before: &str,
    comments: &Comments,
    name: &str,
) -> std::fmt::Result {
    if comments.leading.is_empty() {
        return writeln!(code, "{before}#[doc = \" `{name}`.\"]");
    }
    for line in &comments.leading {
        let line = line.replace("```", "'''");
        writeln!(code, "{before}#[doc = {line:?}]")?;
    }
    Ok(())
}
