//! Which codec the code of a `.proto` file names, and what its messages derive.

use std::path::PathBuf;

const PROTO: &str = "syntax = \"proto3\"; package birds;\n\
    message Name { string text = 1; }\n\
    service Registry { rpc Find(Name) returns (Name); }\n";

fn generated(test: &str, builder: dunlin_build::Builder) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&folder).unwrap();
    let proto = folder.join("birds.proto");
    std::fs::write(&proto, PROTO).unwrap();
    builder
        .out_dir(&folder)
        .compile_protos(&[proto], &[&folder])
        .unwrap();
    std::fs::read_to_string(folder.join("birds.rs")).unwrap()
}

#[test]
fn messages_have_code_of_their_own() {
    let code = generated("own", dunlin_build::configure());
    assert!(code.contains(dunlin_build::MESSAGE_ATTRIBUTE), "{code}");
    assert!(
        code.contains("with dunlin_service::codec::Protobuf"),
        "{code}"
    );
}

#[test]
fn or_are_left_to_prost() {
    let code = generated("prost", dunlin_build::configure().prost_codec());
    assert!(!code.contains(dunlin_build::MESSAGE_ATTRIBUTE), "{code}");
    assert!(code.contains("with dunlin_service::codec::Prost"), "{code}");
}

#[test]
fn a_package_with_services_has_its_descriptors() {
    let code = generated("descriptors", dunlin_build::configure());
    assert!(code.contains("pub const FILE_DESCRIPTOR_SET"), "{code}");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("descriptors");
    let bytes = std::fs::read(folder.join("birds.descriptors.bin")).unwrap();
    let set = <prost_types::FileDescriptorSet as prost::Message>::decode(&bytes[..]).unwrap();
    assert_eq!(set.file[0].name(), "birds.proto");
    assert_eq!(set.file[0].service[0].method[0].name(), "Find");
    assert!(set.file[0].source_code_info.is_none());
}
