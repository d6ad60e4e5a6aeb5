//! Tests of the lifetime of address handles: soft-RoCE uses them when it sends, which a test on it cannot time.

use dunlin_verbs::{Completion, CompletionQueue, Device, QueuePair};

use crate::fake::{complete, live, posted, script};
use crate::fake_tests::{datagram, datagrams, open};
use crate::sys::types::Wc;

/// A handle that is dropped lives until the requests that name it have completed and their entries are used again.
#[test]
fn handles_live_as_long_as_their_requests() {
    script(|s| s.handles = true);
    let device = open();
    let domain = device.create_protection_domain().expect("a domain");
    let (mut pair, mut queue) = datagrams(&device, &domain);
    let to = pair.address();
    let handle = || device.create_address_handle(&domain, &to).expect("one");
    let before = live();

    let first = handle();
    pair.post_send(&[datagram(1, &first), datagram(2, &first)])
        .expect("posted");
    drop(first);
    assert_eq!(live(), before + 1, "two requests are on the way");

    let second = handle();
    let id = posted()[1].0;
    complete(Wc { id, ..Wc::EMPTY });
    let mut some = [Completion::EMPTY; 4];
    assert_eq!(queue.poll(&mut some), Ok(1));
    let four = [3, 4, 5, 6].map(|id| datagram(id, &second));
    pair.post_send(&four).expect("posted");
    assert_eq!(live(), before + 1, "only the second one is in use");
    drop(second);
    assert_eq!(live(), before + 1, "four requests are on the way");

    drop((pair, queue));
    drop((domain, device));
    assert_eq!(live(), 0);
}
