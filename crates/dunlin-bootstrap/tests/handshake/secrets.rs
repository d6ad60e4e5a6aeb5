//! With a secret on one side, on both, and on both but another.

use dunlin_bootstrap::{dial, AcceptorConfig, BootstrapError, Secret};

use crate::harness::*;

fn server(secret: Option<Secret>) -> Server {
    Server::new(AcceptorConfig {
        secret,
        ..serving()
    })
}

#[test]
fn the_same_secret_opens() {
    let server = server(secret("correct horse"));
    let mut config = dialing();
    config.secret = secret("correct horse");
    server.is_well(&config);
}

#[test]
fn another_secret_is_said_to_be_wrong_on_both_sides() {
    let server = server(secret("correct horse"));
    let mut config = dialing();
    config.secret = secret("battery staple");
    let error = dial(server.address(), &config).unwrap_err();
    assert!(
        matches!(error, BootstrapError::WrongSecret { .. }),
        "{error}"
    );
    server.wait_for("the wrong secret", |counts| counts.wrong_secret == 1);
    assert_eq!(server.acceptor.counters().opened, 0);
}

#[test]
fn no_secret_where_one_is_asked_for() {
    let server = server(secret("correct horse"));
    let error = dial(server.address(), &dialing()).unwrap_err();
    assert!(
        matches!(error, BootstrapError::SecretRequired { .. }),
        "{error}"
    );
    server.wait_for("the missing secret", |counts| counts.secret_required == 1);
}

#[test]
fn a_secret_where_none_is_asked_for() {
    let server = server(None);
    let mut config = dialing();
    config.secret = secret("correct horse");
    let error = dial(server.address(), &config).unwrap_err();
    assert!(
        matches!(error, BootstrapError::SecretUnexpected { .. }),
        "{error}"
    );
    server.wait_for("the secret too many", |counts| {
        counts.secret_unexpected == 1
    });
}
