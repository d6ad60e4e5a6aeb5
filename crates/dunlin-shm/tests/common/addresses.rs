//! Where a side is, as a line for the other process.
#![allow(dead_code, missing_docs, unreachable_pub)]

use dunlin_verbs::{EndpointAddress, RemoteAddress, RemoteKey, ENDPOINT_ADDRESS_BYTES};

pub fn write_address(address: &EndpointAddress, remote: RemoteAddress) -> String {
    let hex: String = address
        .encode()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    format!("{hex} {} {}", remote.address, remote.key.0)
}

pub fn read_address(line: &str) -> (EndpointAddress, RemoteAddress) {
    let mut words = line.split(' ');
    let hex = words.next().unwrap();
    let mut bytes = [0; ENDPOINT_ADDRESS_BYTES];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[index * 2..index * 2 + 2], 16).unwrap();
    }
    let remote = RemoteAddress {
        address: words.next().unwrap().parse().unwrap(),
        key: RemoteKey(words.next().unwrap().parse().unwrap()),
    };
    (EndpointAddress::decode(&bytes), remote)
}
