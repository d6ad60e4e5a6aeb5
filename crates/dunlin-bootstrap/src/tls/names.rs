//! The names in a verified certificate, which identify its owner.

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Maximum number of names taken from a certificate, and their maximum length; a certificate with more is identified by
/// these.
const NAMES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 255;

/// The common name of its subject first, then its alternative names: host names, email addresses, URIs such as
/// SPIFFE's.
pub(super) fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return Vec::new();
    };
    let common = parsed.subject().iter_common_name();
    let common = common.filter_map(|name| name.as_str().ok());
    let mut names: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        let is_plain = !name.is_empty() && !name.chars().any(char::is_control);
        let fits = names.len() < NAMES_MAX && name.len() <= NAME_BYTES_MAX;
        if is_plain && fits && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    };
    common.for_each(&mut add);
    if let Ok(Some(alternatives)) = parsed.subject_alternative_name() {
        for name in &alternatives.value.general_names {
            if let GeneralName::DNSName(name)
            | GeneralName::RFC822Name(name)
            | GeneralName::URI(name) = name
            {
                add(name);
            }
        }
    }
    names
}
