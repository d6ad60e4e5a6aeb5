//! Describes services and messages as a `.proto` file does, by their full names.

use std::fmt::{self, Write};

use prost_reflect::{
    Cardinality, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor,
    ServiceDescriptor,
};
use serde_json::json;

use super::descriptors::Descriptors;
use crate::commands::Failure;
use crate::output;

/// Prints the definitions of these names and of all messages in them.
pub(super) fn describe(
    descriptors: &Descriptors,
    names: &[&str],
    json: bool,
) -> Result<(), Failure> {
    let mut found = Found::default();
    for name in names {
        found.add(descriptors, name)?;
    }
    if json {
        let entry = |(name, text): &(String, String)| json!({ "name": name, "definition": text });
        let entries: Vec<_> = found.definitions.iter().map(entry).collect();
        return output::print_message(&json!({ "definitions": entries }));
    }
    let texts: Vec<&str> = found
        .definitions
        .iter()
        .map(|(_, text)| text.as_str())
        .collect();
    output::write(texts.join("\n").as_bytes())
}

/// Definitions, each once, in the order in which they are needed.
#[derive(Default)]
struct Found {
    definitions: Vec<(String, String)>,
}

impl Found {
    fn add(&mut self, descriptors: &Descriptors, name: &str) -> Result<(), Failure> {
        let pool = &descriptors.0;
        let (service, method) = name.split_once('/').unwrap_or((name, ""));
        if let Some(service) = pool.get_service_by_name(service) {
            let mut methods: Vec<MethodDescriptor> = service.methods().collect();
            if !method.is_empty() {
                methods.retain(|other| other.name() == method);
                if methods.is_empty() {
                    let words = format!(
                        "the service {} has no method '{method}'",
                        service.full_name()
                    );
                    return Err(Failure::usage(words));
                }
            }
            self.insert(service.full_name(), || service_text(&service, &methods));
            for method in methods {
                self.message(&method.input());
                self.message(&method.output());
            }
        } else if let Some(message) = pool.get_message_by_name(name) {
            self.message(&message);
        } else if let Some(enumeration) = pool.get_enum_by_name(name) {
            self.enumeration(&enumeration);
        } else {
            return Err(Failure::usage(format!(
                "'{name}' is not a service, method, message or enum"
            )));
        }
        Ok(())
    }

    /// Returns `false` if it was there already.
    fn insert(&mut self, name: &str, text: impl FnOnce() -> Result<String, fmt::Error>) -> bool {
        let is_new = self.definitions.iter().all(|(known, _)| known != name);
        if is_new {
            // A string takes what is written.
            self.definitions
                .push((name.to_owned(), text().unwrap_or_default()));
        }
        is_new
    }

    fn message(&mut self, message: &MessageDescriptor) {
        // What everybody knows is not explained.
        let is_known = message.package_name() == "google.protobuf";
        if is_known || !self.insert(message.full_name(), || message_text(message)) {
            return;
        }
        for field in message.fields() {
            self.kind(&field.kind());
        }
    }

    fn kind(&mut self, kind: &Kind) {
        match kind {
            Kind::Message(message) if message.is_map_entry() => {
                self.kind(&message.map_entry_value_field().kind());
            }
            Kind::Message(message) => self.message(message),
            Kind::Enum(enumeration) => self.enumeration(enumeration),
            _ => {}
        }
    }

    fn enumeration(&mut self, enumeration: &EnumDescriptor) {
        if enumeration.package_name() != "google.protobuf" {
            self.insert(enumeration.full_name(), || enum_text(enumeration));
        }
    }
}

fn service_text(
    service: &ServiceDescriptor,
    methods: &[MethodDescriptor],
) -> Result<String, fmt::Error> {
    let mut text = String::new();
    writeln!(text, "service {} {{", service.full_name())?;
    for method in methods {
        let stream = |streams: bool| if streams { "stream " } else { "" };
        writeln!(
            text,
            "  rpc {}({}{}) returns ({}{});",
            method.name(),
            stream(method.is_client_streaming()),
            method.input().full_name(),
            stream(method.is_server_streaming()),
            method.output().full_name()
        )?;
    }
    writeln!(text, "}}")?;
    Ok(text)
}

fn message_text(message: &MessageDescriptor) -> Result<String, fmt::Error> {
    let mut text = String::new();
    writeln!(text, "message {} {{", message.full_name())?;
    let in_choice = |field: &FieldDescriptor| {
        let choice = field.containing_oneof();
        choice.is_some_and(|choice| !choice.is_synthetic())
    };
    for field in message.fields().filter(|field| !in_choice(field)) {
        writeln!(text, "  {}", field_text(&field))?;
    }
    for choice in message.oneofs().filter(|choice| !choice.is_synthetic()) {
        writeln!(text, "  oneof {} {{", choice.name())?;
        for field in choice.fields() {
            writeln!(text, "    {}", field_text(&field))?;
        }
        writeln!(text, "  }}")?;
    }
    writeln!(text, "}}")?;
    Ok(text)
}

fn field_text(field: &FieldDescriptor) -> String {
    let end = format!("{} = {};", field.name(), field.number());
    if let (true, Kind::Message(entry)) = (field.is_map(), field.kind()) {
        let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
        return format!("map<{}, {}> {end}", type_name(&key), type_name(&value));
    }
    let is_optional = field
        .containing_oneof()
        .is_some_and(|choice| choice.is_synthetic());
    let label = match field.cardinality() {
        Cardinality::Repeated => "repeated ",
        Cardinality::Required => "required ",
        Cardinality::Optional if is_optional => "optional ",
        Cardinality::Optional => "",
    };
    format!("{label}{} {end}", type_name(field))
}

fn type_name(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(enumeration) => enumeration.full_name().to_owned(),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

fn enum_text(enumeration: &EnumDescriptor) -> Result<String, fmt::Error> {
    let mut text = String::new();
    writeln!(text, "enum {} {{", enumeration.full_name())?;
    for value in enumeration.values() {
        writeln!(text, "  {} = {};", value.name(), value.number())?;
    }
    writeln!(text, "}}")?;
    Ok(text)
}
