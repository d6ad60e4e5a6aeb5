//! Files by their names, and by the symbols in them.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
};

use super::ReflectionError;

/// A descriptor set that keeps each file as bytes, including what prost does not know.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Set {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub(super) files: Vec<Vec<u8>>,
}

/// A file with its imports.
struct File {
    bytes: Vec<u8>,
    imports: Vec<String>,
}

/// An index of files.
#[derive(Default)]
pub(super) struct Index {
    pub(super) services: BTreeSet<String>,
    files: BTreeMap<String, File>,
    /// Names of files, by the full names of the symbols in them.
    symbols: BTreeMap<String, String>,
    /// Names of files, by the extended message and the number of the extension.
    extensions: BTreeMap<(String, i32), String>,
}

impl Index {
    /// Adds the files of an encoded set.
    pub(super) fn add(&mut self, set: &[u8]) -> Result<(), ReflectionError> {
        for (file, bytes) in read(set)? {
            match self.files.get(file.name()) {
                None => self.add_file(file, bytes),
                Some(known) if known.bytes == bytes => {}
                Some(_) => return Err(ReflectionError::TwoFiles(file.name().to_owned())),
            }
        }
        Ok(())
    }

    /// Adds the files whose names are new: a user's own copy of gRPC's service file may have options that ours does not
    /// have.
    pub(super) fn add_unless_known(&mut self, set: &[u8]) -> Result<(), ReflectionError> {
        for (file, bytes) in read(set)? {
            if !self.files.contains_key(file.name()) {
                self.add_file(file, bytes);
            }
        }
        Ok(())
    }

    /// Adds a file whose name is new.
    fn add_file(&mut self, file: FileDescriptorProto, bytes: Vec<u8>) {
        let name = file.name().to_owned();
        let package = file.package();
        for message in &file.message_type {
            self.add_message(&name, package, message);
        }
        for enumeration in &file.enum_type {
            self.add_enumeration(&name, package, enumeration);
        }
        self.add_extensions(&name, package, &file.extension);
        for service in &file.service {
            let full = join(package, service.name());
            for method in &service.method {
                self.add_symbol(&name, join(&full, method.name()));
            }
            self.services.insert(full.clone());
            self.add_symbol(&name, full);
        }
        let imports = file.dependency;
        self.files.insert(name, File { bytes, imports });
    }

    fn add_symbol(&mut self, file: &str, symbol: String) {
        self.symbols.insert(symbol, file.to_owned());
    }

    fn add_message(&mut self, file: &str, outer: &str, message: &DescriptorProto) {
        let full = join(outer, message.name());
        for field in &message.field {
            self.add_symbol(file, join(&full, field.name()));
        }
        for oneof in &message.oneof_decl {
            self.add_symbol(file, join(&full, oneof.name()));
        }
        for inner in &message.nested_type {
            self.add_message(file, &full, inner);
        }
        for enumeration in &message.enum_type {
            self.add_enumeration(file, &full, enumeration);
        }
        self.add_extensions(file, &full, &message.extension);
        self.add_symbol(file, full);
    }

    /// The scope of an enumeration's values is that of the enumeration itself, not within it.
    fn add_enumeration(&mut self, file: &str, outer: &str, enumeration: &EnumDescriptorProto) {
        for value in &enumeration.value {
            self.add_symbol(file, join(outer, value.name()));
        }
        self.add_symbol(file, join(outer, enumeration.name()));
    }

    fn add_extensions(&mut self, file: &str, outer: &str, extensions: &[FieldDescriptorProto]) {
        for extension in extensions {
            let of = extension.extendee().trim_start_matches('.').to_owned();
            self.extensions
                .insert((of, extension.number()), file.to_owned());
            self.add_symbol(file, join(outer, extension.name()));
        }
    }

    /// Returns a file, followed by all its imports, as far as they are known.
    pub(super) fn file(&self, name: &str) -> Option<Vec<Vec<u8>>> {
        let mut names = vec![name];
        let mut found = vec![self.files.get(name)?.bytes.clone()];
        let mut next = 0;
        while let Some(file) = names.get(next).and_then(|name| self.files.get(*name)) {
            for import in &file.imports {
                let is_new = !names.contains(&&**import);
                if let Some(imported) = self.files.get(import).filter(|_| is_new) {
                    names.push(import);
                    found.push(imported.bytes.clone());
                }
            }
            next += 1;
        }
        Some(found)
    }

    pub(super) fn file_of(&self, symbol: &str) -> Option<Vec<Vec<u8>>> {
        self.file(self.symbols.get(symbol.trim_start_matches('.'))?)
    }

    pub(super) fn file_of_extension(&self, message: &str, number: i32) -> Option<Vec<Vec<u8>>> {
        self.file(self.extensions.get(&(message.to_owned(), number))?)
    }

    /// Numbers of all extensions of a message, if the message exists.
    pub(super) fn extensions(&self, message: &str) -> Option<Vec<i32>> {
        let of = |number| (message.to_owned(), number);
        let known = self.extensions.range(of(i32::MIN)..=of(i32::MAX));
        let numbers: Vec<i32> = known.map(|((_, number), _)| *number).collect();
        let is_known = !numbers.is_empty() || self.symbols.contains_key(message);
        is_known.then_some(numbers)
    }
}

/// Decodes the files of a set, each with its bytes.
fn read(set: &[u8]) -> Result<Vec<(FileDescriptorProto, Vec<u8>)>, ReflectionError> {
    let malformed = |error: prost::DecodeError| ReflectionError::Malformed(error.to_string());
    let files = Set::decode(set).map_err(malformed)?.files.into_iter();
    let read = files.map(|bytes| Ok((FileDescriptorProto::decode(&bytes[..])?, bytes)));
    read.collect::<Result<_, _>>().map_err(malformed)
}

/// Qualifies a name by its package or message.
fn join(outer: &str, name: &str) -> String {
    match outer {
        "" => name.to_owned(),
        outer => format!("{outer}.{name}"),
    }
}
