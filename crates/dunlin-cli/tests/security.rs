//! Certificates and rights on the command line: who is let in, what each may do, and what is said to the others.

mod common;

use std::path::{Path, PathBuf};
use std::process::Output;

use common::{dunlin, failure, Scratch, Serving};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// A folder with an authority and what it has issued, as files.
struct Issued {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Issued {
    fn new(name: &str) -> Self {
        let own = format!("dunlin-test-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(own);
        std::fs::create_dir(&folder).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        std::fs::write(folder.join("ca.pem"), pem).unwrap();
        let issuer = Issuer::new(params, key);
        Self { folder, issuer }
    }

    fn file(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// Options with a certificate for this name, and this authority.
    fn options(&self, name: &str) -> Vec<String> {
        let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
        if !Path::new(&self.file(&cert)).exists() {
            let mut params = CertificateParams::new([name.to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            let pair = KeyPair::generate().unwrap();
            let made = params.signed_by(&pair, &self.issuer).unwrap();
            std::fs::write(self.file(&cert), made.pem()).unwrap();
            std::fs::write(self.file(&key), pair.serialize_pem()).unwrap();
        }
        let files = [
            ("--tls-ca", "ca.pem"),
            ("--tls-cert", &cert),
            ("--tls-key", &key),
        ];
        let options = files.map(|(option, file)| [option.to_owned(), self.file(file)]);
        options.into_iter().flatten().collect()
    }
}

impl Drop for Issued {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn serve(options: &[String], more: &[&str]) -> Serving {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    Serving::start("echo", &[&options[..], more].concat())
}

fn call(server: &Serving, options: &[String], handler: &str) -> Output {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let call = ["call", server.address(), handler, "hello"];
    dunlin(&[&call[..], &options].concat())
}

fn words(output: &Output) -> String {
    failure(output, 1)
}

const RIGHTS: &[u8] = b"[[allow]]
who = \"name:owner\"
call = [\"*\"]
read = [\"memory\"]

[[allow]]
who = \"certificate\"
call = [\"/dunlin.Measure/*\", \"figures\"]
";

#[test]
fn certificates_let_clients_in_and_rights_say_what_each_may_do() {
    let issued = Issued::new("authority");
    let rights = Scratch::new("rights.toml", RIGHTS);
    let server = serve(
        &issued.options("127.0.0.1"),
        &["--rights", rights.path(), "--region", "4096"],
    );
    let owner = call(&server, &issued.options("owner"), "1");
    assert_eq!(owner.stdout, b"hello", "{owner:?}");
    let refused = words(&call(&server, &issued.options("guest"), "1"));
    assert!(
        refused.contains("guest (by certificate) has no right to call handler 1"),
        "{refused}"
    );

    let without = words(&call(&server, &issued.options("owner")[..2], "1"));
    assert!(
        without.contains("rejected this client's certificate"),
        "{without}"
    );
    assert!(
        without.contains("a certificate is required, and none was given"),
        "{without}"
    );
    let plain = words(&call(&server, &[], "1"));
    assert!(plain.contains("requires TLS"), "{plain}");

    let other = Issued::new("another");
    let foreign = words(&call(&server, &other.options("owner"), "1"));
    assert!(foreign.contains("certificate of the server"), "{foreign}");
    assert!(
        foreign.contains("not issued by a trusted authority"),
        "{foreign}"
    );

    let owner = issued.options("owner");
    let owner: Vec<&str> = owner.iter().map(String::as_str).collect();
    let doctor = dunlin(&[&["doctor", server.address()][..], &owner].concat());
    assert!(doctor.status.success(), "{doctor:?}");
    let blind = dunlin(&["doctor", server.address()]);
    let said = String::from_utf8_lossy(&blind.stdout).into_owned();
    assert_eq!(blind.status.code(), Some(1));
    assert!(said.contains("with --tls-ca"), "{said}");
    server.stop();
}

#[test]
fn the_settings_have_the_same_files() {
    let issued = Issued::new("settings");
    issued.options("127.0.0.1");
    issued.options("app");
    let file = |name: &str| issued.file(name);
    let text = format!(
        "[server]\ntls_cert = '{}'\ntls_key = '{}'\ntls_ca = '{}'\ntls_optional = 'yes'\n\
         [client]\ntls_ca = '{}'\ntls_cert = '{}'\ntls_key = '{}'\n",
        file("127.0.0.1.pem"),
        file("127.0.0.1.key"),
        file("ca.pem"),
        file("ca.pem"),
        file("app.pem"),
        file("app.key"),
    );
    let settings = Scratch::new("tls.toml", text.as_bytes());
    let server = serve(&[], &["--config", settings.path()]);
    let called = dunlin(&[
        "--config",
        settings.path(),
        "call",
        server.address(),
        "1",
        "hello",
    ]);
    assert_eq!(called.stdout, b"hello", "{called:?}");
    // Without a certificate, because the server says that it is none's duty.
    let called = call(&server, &issued.options("app")[..2], "1");
    assert_eq!(called.stdout, b"hello", "{called:?}");
    server.stop();
}

#[test]
fn what_is_wrong_with_files_is_said_before_anything_is_served() {
    let issued = Issued::new("wrong");
    let own = issued.options("127.0.0.1");
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let serve = |more: &[&str]| {
        let begin = ["serve", "echo", "--listen", "dunlin://127.0.0.1:0"];
        dunlin(&[&begin[..], more].concat())
    };
    let half = failure(&serve(&own[2..4]), 2);
    assert!(
        half.contains("--tls-key (or `tls_key`) is missing"),
        "{half}"
    );
    let lonely = failure(&serve(&own[..2]), 2);
    assert!(lonely.contains("needs its own"), "{lonely}");
    let absent = failure(
        &serve(&["--tls-cert", "/no/cert", "--tls-key", "/no/key"]),
        2,
    );
    assert!(absent.contains("/no/cert"), "{absent}");

    for (text, words) in [
        (
            "[[allow]]\nwho = 'me'\n",
            "line 2: who: unknown client `me`",
        ),
        (
            "[[allow]]\nwho = 'certificate'\nwrites = ['x']\n",
            "line 3: no rights (unknown field `writes`",
        ),
        (
            "[[allow]]\nwho = 'certificate'\n\ncall = ['/no.Such/Method']\n",
            "line 4: call: rights of `certificate`: the server has no method `/no.Such/Method`",
        ),
        (
            "[[allow]]\nwho = 'certificate'\nread = ['none']\n",
            "line 3: read: rights of `certificate`: the server has no region `none`",
        ),
        (
            "[[allow]]\nwho = 'secret'\ncall = [1]\n",
            "line 3: call: rights of `secret`: the server has no secret",
        ),
    ] {
        let rights = Scratch::new("slip.toml", text.as_bytes());
        let said = failure(
            &serve(&[&own[..], &["--rights", rights.path()]].concat()),
            2,
        );
        assert!(said.contains(rights.path()), "{said}");
        assert!(said.contains(words), "{said}");
    }
}
