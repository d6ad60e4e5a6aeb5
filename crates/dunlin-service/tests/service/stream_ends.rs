//! What ends one stream, and leaves the others of its channel alone.

use crate::common::flow_client::FlowClient;
use crate::common::Note;
use crate::flowing::{note, start, Flowing};
use dunlin_service::Code;
use futures_util::stream;

#[tokio::test]
async fn a_head_that_is_too_long_ends_its_stream_alone() {
    let (_server, address) = start(&Flowing::default());
    let client = FlowClient::connect(&address).await.unwrap();
    let (say, said) = futures_channel::mpsc::unbounded();
    let mut other = client.chat(said).await.unwrap().into_inner();
    let long = Note {
        number: 3,
        ..Note::new("long head")
    };
    let counted = client.count(long.clone()).await.unwrap_err();
    assert_eq!(counted.code(), Code::ResourceExhausted, "{counted}");
    let summed = client.sum(stream::iter([long])).await.unwrap_err();
    assert_eq!(summed.code(), Code::ResourceExhausted, "{summed}");
    say.unbounded_send(note(1, 10)).unwrap();
    assert_eq!(other.message().await.unwrap(), Some(note(1, 10)));
}
