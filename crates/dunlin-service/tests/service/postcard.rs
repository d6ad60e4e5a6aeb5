//! Services of plain Rust types, without protobuf: whatever serde can do, in all four ways.

#![allow(missing_docs, unreachable_pub)]

use std::collections::BTreeMap;

use dunlin_service::codec::{Postcard, Raw};
use dunlin_service::{Code, Request, Response, Server, Status, Streaming};
use futures_util::stream::{self, BoxStream, StreamExt};
use serde::{Deserialize, Serialize};

/// A change of a map.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// No entries.
    #[default]
    Clear,
    /// An entry.
    Put {
        /// Its key.
        key: String,
        /// Its value.
        value: Vec<u16>,
    },
    /// One entry less.
    Remove(String),
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Applied {
    /// So many entries there are now.
    Done(u32),
    /// Nothing was changed.
    Refused(String),
}

impl Default for Applied {
    fn default() -> Self {
        Self::Done(0)
    }
}

/// What there is.
pub type Map = BTreeMap<String, Vec<u16>>;

dunlin_service::service! {
    /// A map.
    pub service Store = "plain.Store" with Postcard {
        /// Applies a change; how many entries there are then.
        rpc apply as Apply(Change) -> Applied;
        /// All entries, as changes that make them.
        rpc dump as Dump(()) -> stream Change;
        /// What a map is after all the changes.
        rpc fold as Fold(stream Change) -> Map;
        /// The number of entries after each change.
        rpc count as Count(stream Change) -> stream u32;
    }
}

dunlin_service::service! {
    /// Bytes as they are.
    pub service Bytes = "plain.Bytes" with Raw {
        /// From the last to the first.
        rpc reverse as Reverse(Vec<u8>) -> Vec<u8>;
    }
}

#[derive(Default)]
struct Memory(std::sync::Mutex<Map>);

fn apply(map: &mut Map, change: Change) {
    match change {
        Change::Clear => map.clear(),
        Change::Put { key, value } => drop(map.insert(key, value)),
        Change::Remove(key) => drop(map.remove(&key)),
    }
}

#[dunlin_service::async_trait]
impl store_server::Store for Memory {
    type DumpStream = BoxStream<'static, Result<Change, Status>>;
    type CountStream = BoxStream<'static, Result<u32, Status>>;

    async fn apply(&self, request: Request<Change>) -> Result<Response<Applied>, Status> {
        let change = request.into_inner();
        if change == Change::Remove("all".into()) {
            return Ok(Response::new(Applied::Refused("not that one".into())));
        }
        let mut map = self.0.lock().unwrap();
        apply(&mut map, change);
        Ok(Response::new(Applied::Done(map.len() as u32)))
    }

    async fn dump(&self, _: Request<()>) -> Result<Response<Self::DumpStream>, Status> {
        let map = self.0.lock().unwrap().clone();
        let entries = map
            .into_iter()
            .map(|(key, value)| Ok(Change::Put { key, value }));
        Ok(Response::new(stream::iter(entries).boxed()))
    }

    async fn fold(&self, request: Request<Streaming<Change>>) -> Result<Response<Map>, Status> {
        let mut changes = request.into_inner();
        let mut map = Map::new();
        while let Some(change) = changes.message().await? {
            apply(&mut map, change);
        }
        Ok(Response::new(map))
    }

    async fn count(
        &self,
        request: Request<Streaming<Change>>,
    ) -> Result<Response<Self::CountStream>, Status> {
        let counts = request.into_inner().scan(Map::new(), |map, change| {
            let counted = change.map(|change| {
                apply(map, change);
                map.len() as u32
            });
            std::future::ready(Some(counted))
        });
        Ok(Response::new(counts.boxed()))
    }
}

struct Mirror;

impl bytes_server::SyncBytes for Mirror {
    fn reverse(
        &self,
        request: &mut Request<Vec<u8>>,
        reply: &mut Response<Vec<u8>>,
    ) -> Result<(), Status> {
        reply.get_mut().extend(request.get_ref().iter().rev());
        Ok(())
    }
}

fn put(key: &str, value: &[u16]) -> Change {
    Change::Put {
        key: key.into(),
        value: value.into(),
    }
}

#[tokio::test]
async fn plain_types_and_plain_bytes_travel() {
    let server = Server::builder()
        .add_service(store_server::StoreServer::new(Memory::default()))
        .add_service(bytes_server::SyncBytesServer::inline(Mirror))
        .start("dunlin://127.0.0.1:0")
        .unwrap();
    let address = server.address().to_string();
    let channel = dunlin_service::Channel::connect(&address).await.unwrap();
    let bytes = bytes_client::BytesClient::new(channel.clone());
    assert_eq!(
        bytes.reverse(vec![1, 2, 3]).await.unwrap().into_inner(),
        [3, 2, 1]
    );
    let store = store_client::StoreClient::new(channel);
    assert_eq!(
        store.apply(put("a", &[1, 500])).await.unwrap().into_inner(),
        Applied::Done(1)
    );
    assert_eq!(
        store.apply(put("b", &[])).await.unwrap().into_inner(),
        Applied::Done(2)
    );
    let refused = store.apply(Change::Remove("all".into())).await.unwrap();
    assert_eq!(
        refused.into_inner(),
        Applied::Refused("not that one".into())
    );
    let dumped = store.dump(()).await.unwrap().into_inner();
    let dumped: Vec<Change> = dumped.map(Result::unwrap).collect().await;
    assert_eq!(dumped, [put("a", &[1, 500]), put("b", &[])]);
    let changes = [put("a", &[1]), put("b", &[2]), Change::Remove("a".into())];
    let map = store
        .fold(stream::iter(changes.clone()))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(map, Map::from([("b".to_owned(), vec![2])]));
    let counts = store
        .count(stream::iter(changes))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        counts.map(Result::unwrap).collect::<Vec<_>>().await,
        [1, 2, 1]
    );
}

/// The same name with other types is an error, and no other message.
mod other {
    dunlin_service::service! {
        /// Of another definition.
        pub service Store = "plain.Store" with dunlin_service::codec::Postcard {
            /// It has other types.
            rpc apply as Apply((u8, String)) -> u8;
            /// It has another kind.
            rpc dump as Dump(()) -> u32;
        }
    }
}

#[tokio::test]
async fn other_definitions_are_refused() {
    let service = store_server::StoreServer::new(Memory::default());
    let server = Server::builder().add_service(service);
    let server = server.start("dunlin://127.0.0.1:0").unwrap();
    let store = other::store_client::StoreClient::connect(server.address().to_string());
    let store = store.await.unwrap();
    let status = store.apply((77, "x".into())).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert!(status.message().contains("/plain.Store/Apply"), "{status}");
    let status = store.dump(()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status}");
    assert!(status.message().contains("older definition"), "{status}");
}
