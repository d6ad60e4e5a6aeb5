//! With certificates: who gets in, who is refused and what both sides hear of it, and what somebody in between sees.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use dunlin_bootstrap::{
    dial, AcceptorConfig, Address, BootstrapError, CertificateFault, ClientTls, DialConfig, Peer,
    ServerTls, TlsIdentity, TlsRoots,
};
use rcgen::{
    date_time_ymd, BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};

use crate::harness::*;

/// An authority, and what it issues.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        Self::named("Authority")
    }

    fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    fn roots(&self) -> TlsRoots {
        TlsRoots::from_pem(self.pem.as_bytes()).unwrap()
    }

    /// A certificate for these names, changed by `change`.
    fn issue(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> TlsIdentity {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (chain, key) = (certificate.pem(), key.serialize_pem());
        TlsIdentity::from_pem(chain.as_bytes(), key.as_bytes()).unwrap()
    }
}

fn as_it_is(_: &mut CertificateParams) {}

fn expired(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
}

fn serving_tls(tls: ServerTls) -> AcceptorConfig {
    AcceptorConfig {
        tls: Some(tls),
        ..serving()
    }
}

fn dialing_tls(tls: ClientTls) -> DialConfig {
    DialConfig {
        tls: Some(tls),
        ..dialing()
    }
}

/// A server for clients with certificates of this authority, and who came.
fn mutual(authority: &Authority) -> (Server, Arc<Mutex<Vec<Peer>>>) {
    let own = authority.issue(&["127.0.0.1"], as_it_is);
    let tls = ServerTls::with_clients(&own, &authority.roots()).unwrap();
    let came = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&came);
    let server = Server::opening(serving_tls(tls), move |request, peer| {
        list.lock().unwrap().push(peer.clone());
        echo(request, peer)
    });
    (server, came)
}

fn client(authority: &Authority, own: Option<&TlsIdentity>) -> DialConfig {
    dialing_tls(ClientTls::new(&authority.roots(), own).unwrap())
}

#[test]
fn a_server_knows_the_names_of_whom_it_lets_in() {
    let authority = Authority::new();
    let (server, came) = mutual(&authority);
    let own = authority.issue(&["app.example"], |params| {
        params.distinguished_name.push(DnType::CommonName, "app");
        let uri = "spiffe://example/app".try_into().unwrap();
        params.subject_alt_names.push(rcgen::SanType::URI(uri));
    });
    server.is_well(&client(&authority, Some(&own)));
    let came = came.lock().unwrap();
    let expected = ["app", "app.example", "spiffe://example/app"];
    assert_eq!(came[0].names(), expected);
    assert!(came[0].has_certificate() && !came[0].knows_secret());
    assert_eq!(came[0].to_string(), "app (by certificate)");
}

#[test]
fn clients_need_no_certificate_unless_they_are_asked_for_one() {
    let authority = Authority::new();
    let own = authority.issue(&["127.0.0.1"], as_it_is);
    let with_names = authority.issue(&["app"], as_it_is);
    for tls in [
        ServerTls::new(&own).unwrap(),
        ServerTls::with_optional_clients(&own, &authority.roots()).unwrap(),
    ] {
        let server = Server::new(serving_tls(tls));
        server.is_well(&client(&authority, None));
        server.is_well(&client(&authority, Some(&with_names)));
    }
    let (server, came) = mutual(&authority);
    let error = server.open(&client(&authority, None)).unwrap_err();
    let BootstrapError::ClientCertificate { fault, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*fault, CertificateFault::Missing);
    server.wait_for("the missing one", |counts| counts.tls_failed == 1);
    assert!(came.lock().unwrap().is_empty());
}

#[test]
fn a_certificate_that_has_ended_is_refused_by_either_side() {
    let authority = Authority::new();
    let old = authority.issue(&["127.0.0.1"], expired);
    let server = Server::new(serving_tls(ServerTls::new(&old).unwrap()));
    let error = server.open(&client(&authority, None)).unwrap_err();
    let BootstrapError::ServerCertificate { fault, .. } = &error else {
        panic!("{error}");
    };
    let ended = matches!(fault, CertificateFault::Expired { seconds_ago: Some(ago) } if *ago > 86_400 * 365);
    assert!(ended, "{fault}");
    assert!(error.to_string().contains("it expired"), "{error}");
    assert!(error.to_string().contains("days ago"), "{error}");

    let (server, came) = mutual(&authority);
    let error = server.open(&client(&authority, Some(&old))).unwrap_err();
    let BootstrapError::ClientCertificate { fault, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*fault, CertificateFault::Expired { seconds_ago: None });
    server.wait_for("the old one", |counts| counts.tls_failed == 1);
    assert!(came.lock().unwrap().is_empty());
}

#[test]
fn a_certificate_for_another_name_is_refused_unless_that_name_was_asked_for() {
    let authority = Authority::new();
    let own = authority.issue(&["db.example", "db2.example"], as_it_is);
    let server = Server::new(serving_tls(ServerTls::new(&own).unwrap()));
    let error = server.open(&client(&authority, None)).unwrap_err();
    let BootstrapError::ServerCertificate { fault, .. } = &error else {
        panic!("{error}");
    };
    let expected = CertificateFault::WrongName {
        asked: "127.0.0.1".to_owned(),
        names: vec!["db.example".to_owned(), "db2.example".to_owned()],
    };
    assert_eq!(*fault, expected);
    let words = "it is valid for db.example, db2.example, not for 127.0.0.1";
    assert!(error.to_string().contains(words), "{error}");
    let tls = ClientTls::new(&authority.roots(), None).unwrap();
    server.is_well(&dialing_tls(tls.server_name("db2.example")));
}

#[test]
fn an_authority_that_is_not_trusted_and_a_certificate_for_another_use_are_refused() {
    let (authority, other) = (Authority::new(), Authority::named("Another"));
    let (server, came) = mutual(&authority);
    let foreign = other.issue(&["app"], as_it_is);
    let of_a_server = authority.issue(&["app"], |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    for (own, expected) in [
        (&foreign, CertificateFault::UnknownIssuer),
        (&of_a_server, CertificateFault::WrongUse),
    ] {
        let error = server.open(&client(&authority, Some(own))).unwrap_err();
        let BootstrapError::ClientCertificate { fault, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(*fault, expected);
    }
    let good = authority.issue(&["app"], as_it_is);
    let error = server.open(&client(&other, Some(&good))).unwrap_err();
    let BootstrapError::ServerCertificate { fault, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*fault, CertificateFault::UnknownIssuer);
    server.wait_for("all three", |counts| counts.tls_failed == 3);
    assert!(came.lock().unwrap().is_empty());
}

#[test]
fn a_side_that_speaks_no_tls_is_told_so() {
    let authority = Authority::new();
    let (server, _) = mutual(&authority);
    let error = server.open(&dialing()).unwrap_err();
    assert!(
        matches!(error, BootstrapError::TlsRequired { .. }),
        "{error}"
    );
    server.wait_for("the plain one", |counts| counts.tls_required == 1);
    let plain = Server::new(serving());
    let error = plain.open(&client(&authority, None)).unwrap_err();
    assert!(
        matches!(error, BootstrapError::TlsUnexpected { .. }),
        "{error}"
    );
    plain.wait_for("the one in TLS", |counts| counts.tls_required == 1);
    plain.is_well(&dialing());
}

#[test]
fn the_secret_is_proved_inside_tls() {
    let authority = Authority::new();
    let own = authority.issue(&["127.0.0.1"], as_it_is);
    let config = AcceptorConfig {
        secret: secret("correct horse"),
        ..serving_tls(ServerTls::new(&own).unwrap())
    };
    let server = Server::new(config);
    let mut config = client(&authority, None);
    let error = server.open(&config).unwrap_err();
    assert!(
        matches!(error, BootstrapError::SecretRequired { .. }),
        "{error}"
    );
    config.secret = secret("battery staple");
    let error = server.open(&config).unwrap_err();
    assert!(
        matches!(error, BootstrapError::WrongSecret { .. }),
        "{error}"
    );
    config.secret = secret("correct horse");
    server.is_well(&config);
}

/// Passes bytes both ways until one side ends, and keeps what the client said; `change` sees each piece before it goes
/// on.
fn wire_tap(
    server: &Server,
    config: &DialConfig,
    mut change: impl FnMut(&mut [u8]) + Send,
) -> (bool, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: Address = listener.local_addr().unwrap().into();
    let heard = Mutex::new(Vec::new());
    let opened = thread::scope(|scope| {
        let heard = &heard;
        scope.spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let upstream = server.stranger();
            let mut back = (upstream.try_clone().unwrap(), client.try_clone().unwrap());
            thread::scope(|scope| {
                scope.spawn(move || {
                    let _ = std::io::copy(&mut back.0, &mut back.1);
                    let _ = back.1.shutdown(Shutdown::Both);
                });
                let (mut from, mut to) = (&client, &upstream);
                let mut piece = [0; 4096];
                while let Ok(bytes @ 1..) = from.read(&mut piece) {
                    change(&mut piece[..bytes]);
                    heard.lock().unwrap().extend_from_slice(&piece[..bytes]);
                    if to.write_all(&piece[..bytes]).is_err() {
                        break;
                    }
                }
                let _ = upstream.shutdown(Shutdown::Both);
            });
        });
        dial(&address, config).and_then(|dialed| dialed.open(request()))
    });
    (opened.is_ok(), heard.into_inner().unwrap())
}

/// Says of each byte of a stream of TLS in which record it is, and where in it: five bytes of type, version and length,
/// then what it holds.
#[derive(Default)]
struct Records {
    record: usize,
    place: usize,
    length: usize,
}

impl Records {
    fn of(&mut self, piece: &[u8]) -> Vec<(usize, usize)> {
        let place_of = |byte: &u8| {
            let at = (self.record, self.place);
            match self.place {
                0 => self.length = 5,
                3 => self.length += usize::from(*byte) << 8,
                4 => self.length += usize::from(*byte),
                _ => {}
            }
            self.place += 1;
            if self.place == self.length {
                (self.record, self.place) = (self.record + 1, 0);
            }
            at
        };
        piece.iter().map(place_of).collect()
    }
}

fn contains(bytes: &[u8], words: &[u8]) -> bool {
    bytes.windows(words.len()).any(|window| window == words)
}

#[test]
fn nobody_in_between_reads_what_is_said_and_a_replay_is_refused() {
    let authority = Authority::new();
    let (server, came) = mutual(&authority);
    let own = authority.issue(&["app"], as_it_is);
    let config = client(&authority, Some(&own));
    let (opened, said) = wire_tap(&server, &config, |_| {});
    assert!(opened && came.lock().unwrap().len() == 1);
    for words in [&b"DUNLIN"[..], b"shm", b"plain", b"ring_key", b"app"] {
        assert!(!contains(&said, words), "{words:?} can be read");
    }
    // All that the client said, once more.
    let mut stranger = server.stranger();
    stranger.write_all(&said).unwrap();
    let mut answer = Vec::new();
    let _ = stranger.read_to_end(&mut answer);
    server.wait_for("the replay", |counts| counts.tls_failed == 1);
    assert_eq!(came.lock().unwrap().len(), 1);
    // Without TLS the same tap reads all of it.
    let plain = Server::new(serving());
    let (opened, said) = wire_tap(&plain, &dialing(), |_| {});
    assert!(opened && contains(&said, b"ring_key"));
}

#[test]
fn a_changed_byte_is_noticed_wherever_it_is() {
    let authority = Authority::new();
    let (server, came) = mutual(&authority);
    let own = authority.issue(&["app"], as_it_is);
    let config = client(&authority, Some(&own));
    let (opened, said) = wire_tap(&server, &config, |_| {});
    assert!(opened);
    // How long signatures are differs from run to run, and with them all places: so the bytes are named by the record
    // that they are in. The versions of records (bytes 1 and 2 of each) are what nobody looks at.
    let records = Records::default()
        .of(&said)
        .into_iter()
        .map(|(record, _)| record)
        .max()
        .unwrap();
    for record in 0..=records {
        // That of the type, of the length, and one of what the record holds.
        for place in [0, 4, 5] {
            let mut seen = Records::default();
            let change = |piece: &mut [u8]| {
                for (at, byte) in seen.of(piece).into_iter().zip(piece) {
                    if at == (record, place) {
                        *byte ^= 0x40;
                    }
                }
            };
            let mut config = config.clone();
            config.timeout = Duration::from_secs(2);
            let (opened, _) = wire_tap(&server, &config, change);
            assert!(!opened, "byte {place} of record {record}");
        }
    }
    assert_eq!(came.lock().unwrap().len(), 1);
}

#[test]
fn whoever_begins_tls_and_says_no_more_is_given_up() {
    let authority = Authority::new();
    let own = authority.issue(&["127.0.0.1"], as_it_is);
    let config = AcceptorConfig {
        handshake_timeout: Duration::from_secs(3),
        ..serving_tls(ServerTls::new(&own).unwrap())
    };
    let server = Server::new(config);
    let mut silent = server.stranger();
    silent.write_all(&[0x16, 3, 1, 2]).unwrap();
    let mut garbage = server.stranger();
    garbage.write_all(&[0x16, 3, 1, 0, 4, 9, 9, 9, 9]).unwrap();
    is_closed_after_an_alert(&mut garbage);
    is_closed(&mut silent);
    server.wait_for("both", |counts| {
        counts.too_slow == 1 && counts.tls_failed == 1
    });
    server.is_well(&client(&authority, None));
}

/// An alert is seven bytes.
fn is_closed_after_an_alert(stream: &mut TcpStream) {
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert!(said.len() <= 7 && said.first().is_none_or(|byte| *byte == 0x15));
}

#[test]
fn files_that_do_not_do_are_named() {
    let missing = TlsIdentity::from_files("/nowhere/cert.pem", "/nowhere/key.pem").unwrap_err();
    assert!(missing.to_string().starts_with("/nowhere/cert.pem: "));
    let empty = TlsRoots::from_pem(b"no PEM").unwrap_err();
    assert_eq!(empty.to_string(), "no certificate in PEM format found");
    let authority = Authority::new();
    let pem = authority.pem.as_bytes();
    let no_key = TlsIdentity::from_pem(pem, pem).unwrap_err();
    assert_eq!(no_key.to_string(), "no private key in PEM format found");
    let key = KeyPair::generate().unwrap().serialize_pem();
    let other = TlsIdentity::from_pem(pem, key.as_bytes()).unwrap();
    let unfit = ServerTls::new(&other).unwrap_err();
    assert!(unfit.to_string().contains("certificate and key"), "{unfit}");
}
