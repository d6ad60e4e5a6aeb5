//! Requests to etcd through its gateway: a POST of a JSON object over HTTP/1.1. 64-bit numbers are encoded as strings,
//! and bytes as base64.

use std::time::Duration;

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use serde_json::{json, Value as Json};

/// Maximum length of an answer: configurations of thousands of machines.
const LONGEST: u64 = 16 << 20;

/// Why a request has no result.
#[derive(Debug)]
pub(super) enum GatewayError {
    /// etcd refused it, with a gRPC status code.
    Refused { code: u64, why: String },
    /// No member of the etcd cluster has answered: the request may have been executed.
    Unanswered(String),
}

/// gRPC's `NOT_FOUND`.
pub(super) const NOT_FOUND: u64 = 5;
/// gRPC's codes for errors that another member of etcd, or the same one later, may not return: `UNAVAILABLE`,
/// `DEADLINE_EXCEEDED`, `UNKNOWN`.
const ELSEWHERE: [u64; 3] = [14, 4, 2];

impl std::fmt::Display for GatewayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GatewayError::Refused { code, why } => {
                write!(f, "etcd refused the request: {why} (code {code})")
            }
            GatewayError::Unanswered(why) => {
                write!(f, "no response from any member of etcd: {why}")
            }
        }
    }
}

/// The members of an etcd cluster, each of which can serve requests.
#[derive(Debug)]
pub(super) struct Gateway {
    /// `HOST:PORT`.
    endpoints: Vec<String>,
    /// Index of the member that answered last.
    turn: usize,
    agent: ureq::Agent,
}

impl Gateway {
    pub(super) fn new(endpoints: Vec<String>, within: Duration) -> Gateway {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(within))
            .http_status_as_error(false)
            .proxy(None)
            .build();
        Gateway {
            endpoints,
            turn: 0,
            agent: config.into(),
        }
    }

    /// Asks one member after another, each once.
    pub(super) fn ask(&mut self, path: &str, request: &Json) -> Result<Json, GatewayError> {
        let mut why = "there are none".to_owned();
        for _ in 0..self.endpoints.len() {
            let endpoint = &self.endpoints[self.turn % self.endpoints.len()];
            match self.ask_one(endpoint, path, request) {
                Ok(answer) => return Ok(answer),
                Err(GatewayError::Refused { code, why }) if !ELSEWHERE.contains(&code) => {
                    return Err(GatewayError::Refused { code, why });
                }
                Err(error) => why = format!("{endpoint}: {error}"),
            }
            self.turn += 1;
        }
        Err(GatewayError::Unanswered(why))
    }

    fn ask_one(&self, endpoint: &str, path: &str, request: &Json) -> Result<Json, GatewayError> {
        let lost = |error: &dyn std::fmt::Display| GatewayError::Unanswered(error.to_string());
        let sent = self.agent.post(format!("http://{endpoint}/v3/{path}"));
        let mut answer = sent.send(request.to_string()).map_err(|e| lost(&e))?;
        let body = answer.body_mut().with_config().limit(LONGEST);
        let body = body.read_to_vec().map_err(|e| lost(&e))?;
        let json: Json = serde_json::from_slice(&body).map_err(|e| lost(&e))?;
        // In the answer of a stream, the result or error is nested one level deeper.
        let error = json
            .get("error")
            .filter(|error| error.is_object())
            .unwrap_or(&json);
        match error.get("code").and_then(Json::as_u64) {
            Some(code) => {
                let why = error.get("message").or(error.get("error"));
                let why = why.and_then(Json::as_str).unwrap_or("no reason given");
                Err(GatewayError::Refused {
                    code,
                    why: why.to_owned(),
                })
            }
            None if answer.status().is_success() => Ok(json),
            None => Err(lost(&format_args!("HTTP status {}", answer.status()))),
        }
    }
}

/// Encodes bytes for the gateway.
pub(super) fn encoded(bytes: &[u8]) -> Json {
    json!(STANDARD.encode(bytes))
}

/// Decodes the bytes of a field.
pub(super) fn bytes_of(json: &Json, field: &str) -> Option<Vec<u8>> {
    STANDARD.decode(json.get(field)?.as_str()?).ok()
}

/// Decodes a 64-bit number; an omitted one is 0.
pub(super) fn number_of(json: &Json, field: &str) -> Option<u64> {
    match json.get(field) {
        None => Some(0),
        Some(Json::String(text)) => text.parse().ok(),
        Some(other) => other.as_u64(),
    }
}
