//! Users, network namespaces and containers' worth of namespaces on one host: shared memory where a folder lets them,
//! UDP where not, and the reason either way. They are made with `ip netns`, `unshare` and `setpriv`, which takes root;
//! else the tests say that they are skipped. They end with the test that made them.

#[path = "../common/mod.rs"]
mod common;
mod manifests;
#[path = "../../../dunlin-shm/tests/common/namespaces.rs"]
mod namespaces;
mod place;

use place::{ask, assert_says, device, doctor, Place, Server, Within, GROUP, MEMBERS, STRANGER};

#[test]
fn two_users_share_memory_when_a_folder_of_their_group_lets_them() {
    let Some(place) = Place::new("two users") else {
        return;
    };
    let meeting = place.meeting(0o3770);
    let [member, other] = MEMBERS.map(|user| Within::default().user(user, &[GROUP]));
    let server = Server::start(&place, &member, Some(&meeting));
    let address = format!("127.0.0.1:{}", server.port);
    assert_eq!(device(&place, &other, Some(&meeting), &address), "shm");
    assert_eq!(device(&place, &member, None, &address), "shm");
    // Who names no folder, and who may not enter it.
    assert_eq!(device(&place, &other, None, &address), "roce");
    let said = doctor(&place, &other, None, &address);
    assert_says(&said, "over roce (same host, another user: RoCEv2 on UDP");
    assert_says(
        &said,
        "the device `shm` cannot connect the client to the server: same host, another user",
    );
    let asked = ["ping", &address, "--device", "shm", "--count", "1"];
    let refused = ask(&place, &other, None, &asked);
    assert_eq!(refused.status.code(), Some(1));
    assert_says(
        &String::from_utf8_lossy(&refused.stderr),
        "same host, another user",
    );
    let stranger = Within::default().user(STRANGER, &[]);
    assert_eq!(device(&place, &stranger, Some(&meeting), &address), "roce");
    let said = doctor(&place, &stranger, Some(&meeting), &address);
    assert_says(&said, "Permission denied");
}

#[test]
fn two_network_namespaces_share_memory_when_both_have_the_folder() {
    let Some(mut place) = Place::new("two network namespaces") else {
        return;
    };
    let Some([a, b]) = place.two_networks("two network namespaces") else {
        return;
    };
    let meeting = place.meeting(0o700);
    let (a, b) = (Within::default().network(&a), Within::default().network(&b));
    let server = Server::start(&place, &b, Some(&meeting));
    let address = format!("198.51.100.2:{}", server.port);
    assert_eq!(device(&place, &a, Some(&meeting), &address), "shm");
    assert_eq!(device(&place, &a, None, &address), "roce");
    let said = doctor(&place, &a, None, &address);
    assert_says(
        &said,
        "over roce (same host, another network namespace: RoCEv2 on UDP",
    );
    let user = a.user(STRANGER, &[]);
    let said = doctor(&place, &user, None, &address);
    assert_says(
        &said,
        "same host, another network namespace and another user",
    );
}

#[test]
fn two_containers_worth_of_namespaces_share_memory_by_a_folder_mounted_in_both() {
    let Some(mut place) = Place::new("two containers") else {
        return;
    };
    let Some([a, b]) = place.two_networks("two containers") else {
        return;
    };
    let meeting = place.meeting(0o3770);
    let [first, second] = MEMBERS;
    let inside = |network: &str, user: u32| {
        let container = Within::default()
            .network(network)
            .container(Some((&meeting, "/mnt/met")));
        container.user(user, &[GROUP])
    };
    let (a, beside, b) = (inside(&a, first), inside(&b, second), inside(&b, second));
    let server = Server::start(&place, &b, Some("/mnt/met"));
    let address = format!("198.51.100.2:{}", server.port);
    assert_eq!(device(&place, &a, Some("/mnt/met"), &address), "shm");
    let long = ["call", &address, "1", &"x".repeat(100_000)];
    let called = ask(&place, &a, Some("/mnt/met"), &long);
    assert!(called.status.success() && called.stdout.len() == 100_000);
    assert_eq!(device(&place, &a, None, &address), "roce");
    // As in one pod: the network and the user are the same, and no folder is needed.
    assert_eq!(device(&place, &beside, None, &address), "shm");
}
