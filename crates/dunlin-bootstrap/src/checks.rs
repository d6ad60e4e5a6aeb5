//! Limits on the contents of messages of both sides: checked both when they are encoded and when they are decoded.

use std::collections::BTreeMap;

use crate::limits::{MAX_CAPABILITIES, MAX_KNOWN, MAX_PARAMETERS, NAME_BYTES, TEXT_BYTES};
use crate::message::{
    ClientHello, ClientOpen, OpenReply, OpenRequest, Outcome, ServerHello, ServerReply,
};
use crate::parse_error::ParseError;
use crate::refusal::Refusal;
use crate::selection::Capability;

fn check_name(what: &'static str, name: &str) -> Result<(), ParseError> {
    let printable = name.bytes().all(|byte| byte.is_ascii_graphic());
    if name.is_empty() || name.len() > NAME_BYTES || !printable {
        return Err(ParseError::Name { what });
    }
    Ok(())
}

fn check_text(what: &'static str, text: &str) -> Result<(), ParseError> {
    if text.len() > TEXT_BYTES || text.chars().any(char::is_control) {
        return Err(ParseError::Name { what });
    }
    Ok(())
}

fn check_count(what: &'static str, count: usize, limit: usize) -> Result<(), ParseError> {
    if count > limit {
        return Err(ParseError::TooMany { what, limit });
    }
    Ok(())
}

pub(crate) fn check_capabilities(capabilities: &[Capability]) -> Result<(), ParseError> {
    check_count("devices", capabilities.len(), MAX_CAPABILITIES)?;
    capabilities
        .iter()
        .try_for_each(|one| check_name("device name", &one.device))
}

fn check_parameters(parameters: &BTreeMap<String, u64>) -> Result<(), ParseError> {
    check_count("parameters", parameters.len(), MAX_PARAMETERS)?;
    parameters
        .keys()
        .try_for_each(|name| check_name("parameter name", name))
}

fn check_refusal(refusal: &Refusal) -> Result<(), ParseError> {
    match refusal {
        Refusal::NoCommonDevice(error) => {
            check_capabilities(&error.client)?;
            check_capabilities(&error.server)?;
            error
                .asked
                .iter()
                .try_for_each(|name| check_name("device name", name))
        }
        Refusal::UnknownPreset { asked, known } => {
            check_count("presets", known.len(), MAX_KNOWN)?;
            known
                .iter()
                .chain([asked])
                .try_for_each(|name| check_text("preset", name))
        }
        Refusal::Limit { name, .. } => check_text("limit", name),
        Refusal::Rejected { message } => check_text("message", message),
        _ => Ok(()),
    }
}

pub(crate) fn check_client_hello(hello: &ClientHello) -> Result<(), ParseError> {
    check_capabilities(&hello.capabilities)?;
    hello
        .preference
        .iter()
        .try_for_each(|name| check_name("device name", name))
}

pub(crate) fn check_server_hello(hello: &ServerHello) -> Result<(), ParseError> {
    match &hello.outcome {
        Outcome::Accepted(choice) => {
            check_name("device name", &choice.client_device)?;
            check_name("device name", &choice.server_device)
        }
        Outcome::Refused(refusal) => check_refusal(refusal),
    }
}

fn check_request(request: &OpenRequest) -> Result<(), ParseError> {
    check_name("device name", &request.device)?;
    check_name("preset", &request.preset)?;
    check_parameters(&request.parameters)
}

pub(crate) fn check_open(open: &ClientOpen) -> Result<(), ParseError> {
    match open {
        ClientOpen::Open(request) => check_request(request),
        ClientOpen::WrongSecret => Ok(()),
    }
}

pub(crate) fn check_reply(reply: &ServerReply) -> Result<(), ParseError> {
    match reply {
        Outcome::Accepted(OpenReply { parameters, .. }) => check_parameters(parameters),
        Outcome::Refused(refusal) => check_refusal(refusal),
    }
}
