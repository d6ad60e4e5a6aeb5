//! An authority for tests, and what it issues.
#![allow(dead_code)]

use dunlin::{TlsIdentity, TlsRoots};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

pub(crate) struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    pub(crate) fn roots(&self) -> TlsRoots {
        TlsRoots::from_pem(self.pem.as_bytes()).unwrap()
    }

    /// A certificate for these names.
    pub(crate) fn issue(&self, names: &[&str]) -> TlsIdentity {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        // The subject has no name of its own.
        params.distinguished_name = rcgen::DistinguishedName::new();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (chain, key) = (certificate.pem(), key.serialize_pem());
        TlsIdentity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap()
    }
}
