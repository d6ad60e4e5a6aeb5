//! Handlers and answers that read messages where they stand, beside those that own them.

use std::sync::Mutex;

use crate::common::until;
use dunlin_service::codec::{Protobuf, Raw};
use dunlin_service::server::Place;
use dunlin_service::{
    protobuf, Channel, Code, MetadataMap, Reply, Request, RequestView, Sent, Server, Status,
};
use shelf_client::ShelfBlockingClient;
use shelf_server::{ViewShelf, ViewShelfServer};

/// A book.
#[derive(Clone, PartialEq, prost::Message, protobuf::Message)]
#[protobuf(view)]
pub struct Book {
    /// Its title.
    #[prost(string, tag = "1")]
    pub title: String,
    /// What is in it.
    #[prost(bytes = "vec", tag = "2")]
    pub pages: Vec<u8>,
    /// Books that it names.
    #[prost(message, repeated, tag = "3")]
    pub sources: Vec<Book>,
}

impl Book {
    fn new(title: &str, pages: usize) -> Self {
        Self {
            title: title.into(),
            pages: vec![7; pages],
            sources: Vec::new(),
        }
    }
}

dunlin_service::service! {
    /// Keeps one book.
    pub service Shelf = "test.Shelf" with Protobuf {
        /// Puts a book there; the one that was there comes back.
        rpc swap as Swap(Book) -> Book;
        /// The first source of the book, or an error; its title says which.
        rpc source as Source(Book) -> Book;
        /// What the request came with.
        rpc look as Look(Book) -> Book;
    }
}

dunlin_service::service! {
    /// Bytes.
    pub service Bytes = "test.Bytes" with Raw {
        /// Without the first byte.
        rpc rest as Rest(Vec<u8>) -> Vec<u8>;
    }
}

#[derive(Default)]
struct Shelf(Mutex<Book>);

impl ViewShelf for Shelf {
    fn swap(
        &self,
        request: RequestView<'_, ShelfSwap>,
        reply: Reply<'_, ShelfSwap>,
    ) -> Result<Sent, Status> {
        let before = std::mem::replace(&mut *self.0.lock().unwrap(), request.message()?);
        Ok(reply.send(&before))
    }

    fn source(
        &self,
        request: RequestView<'_, ShelfSource>,
        reply: Reply<'_, ShelfSource>,
    ) -> Result<Sent, Status> {
        let book = request.view()?;
        match (book.title, book.sources.first()) {
            ("both", Some(source)) => {
                let _ = reply.send(source);
                Err(Status::aborted("after the answer was written"))
            }
            ("panic", _) => panic!("a bug in a handler"),
            (_, Some(source)) => Ok(reply.send(source)),
            (title, None) => Err(Status::not_found(title)),
        }
    }

    fn look(
        &self,
        request: RequestView<'_, ShelfLook>,
        reply: Reply<'_, ShelfLook>,
    ) -> Result<Sent, Status> {
        let user = request.metadata().get("x-user").unwrap_or_default();
        let mut metadata = MetadataMap::new();
        metadata.insert("x-greeted", user).unwrap();
        let named = BookView {
            title: if request.deadline().is_some() {
                "in time"
            } else {
                "whenever"
            },
            pages: user.as_bytes(),
            sources: vec![request.view()?],
        };
        Ok(reply.send_with(&named, &metadata))
    }
}

fn served(on_workers: bool) -> (dunlin::RunningServer, Channel) {
    let shelf = match on_workers {
        true => ViewShelfServer::on_workers(Shelf::default()),
        false => ViewShelfServer::inline(Shelf::default()),
    };
    let server = Server::builder().add_service(shelf);
    let server = server.start("dunlin://127.0.0.1:0").unwrap();
    let channel = Channel::connect_blocking(&server.address().to_string()).unwrap();
    (server, channel)
}

#[test]
fn handlers_read_requests_where_they_stand() {
    for on_workers in [false, true] {
        let (_server, channel) = served(on_workers);
        let shelf = ShelfBlockingClient::new(channel);
        // Longer ones do not fit into a ring's message.
        for pages in [0, 100, 1 << 20] {
            let book = Book {
                sources: vec![Book::new("source", pages)],
                ..Book::new("title", pages)
            };
            let source = shelf.source(book.clone()).unwrap().into_inner();
            assert_eq!(source, book.sources[0]);
            shelf.swap(book.clone()).unwrap();
            assert_eq!(shelf.swap(Book::default()).unwrap().into_inner(), book);
        }
    }
}

#[test]
fn what_travels_beside_a_message_is_lent_too() {
    let (_server, channel) = served(false);
    let shelf = ShelfBlockingClient::new(channel);
    let bare = shelf.look(Book::new("bare", 3)).unwrap();
    assert_eq!(bare.get_ref().title, "whenever");
    assert_eq!(bare.get_ref().sources, [Book::new("bare", 3)]);
    let mut request = Request::new(Book::default());
    request.metadata_mut().insert("x-user", "ada").unwrap();
    request.set_timeout(crate::common::PATIENCE);
    let answer = shelf.look(request).unwrap();
    assert_eq!(answer.metadata().get("x-greeted"), Some("ada"));
    assert_eq!(
        (&answer.get_ref().title[..], &answer.get_ref().pages[..]),
        ("in time", &b"ada"[..])
    );
}

#[test]
fn an_error_is_the_answer_even_after_one_was_written() {
    let (_server, channel) = served(false);
    let shelf = ShelfBlockingClient::new(channel.clone());
    let missing = shelf.source(Book::new("none", 0)).unwrap_err();
    assert_eq!(
        (missing.code(), missing.message()),
        (Code::NotFound, "none")
    );
    let both = Book {
        sources: vec![Book::new("source", 500)],
        ..Book::new("both", 0)
    };
    let late = shelf.source(both).unwrap_err();
    assert_eq!(
        (late.code(), late.message()),
        (Code::Aborted, "after the answer was written")
    );
    assert_eq!(
        shelf.source(Book::new("panic", 0)).unwrap_err().code(),
        Code::Internal
    );
    // Bytes that are no book.
    let request = Request::new(vec![1 << 3]);
    let malformed = channel
        .unary_bytes_blocking("/test.Shelf/Source", request)
        .unwrap_err();
    assert_eq!(malformed.code(), Code::InvalidArgument);
    assert!(
        malformed.message().contains("field 1 has the wrong type"),
        "{malformed}"
    );
}

#[test]
fn answers_of_a_pipeline_are_lent_and_views_can_be_sent() {
    let (_server, channel) = served(false);
    let mut pipeline = channel.pipeline(8).unwrap();
    let source = BookView {
        title: "source",
        ..BookView::default()
    };
    let named = BookView {
        title: "title",
        pages: &[9; 40],
        sources: vec![source],
    };
    let mut titles = Vec::new();
    for tag in 0..32 {
        while !pipeline.submit::<ShelfSource>(&named, tag).unwrap() {
            pipeline
                .poll(|_, answer| keep(&mut titles, answer))
                .unwrap();
        }
    }
    until("all answers", || {
        pipeline
            .poll(|_, answer| keep(&mut titles, answer))
            .unwrap();
        pipeline.outstanding() == 0
    });
    assert_eq!(titles, vec!["source"; 32]);
}

fn keep(titles: &mut Vec<String>, answer: Result<dunlin_service::Answer<'_>, Status>) {
    let book = answer.unwrap().view::<ShelfSource>().unwrap();
    titles.push(book.title.to_owned());
}

#[test]
fn bytes_are_their_own_views() {
    let server = Server::builder().add_service(Tail);
    let server = server.start("dunlin://127.0.0.1:0").unwrap();
    let channel = Channel::connect_blocking(&server.address().to_string()).unwrap();
    let bytes = bytes_client::BytesBlockingClient::new(channel);
    assert_eq!(bytes.rest(b"abc".to_vec()).unwrap().into_inner(), b"bc");
    assert_eq!(bytes.rest(Vec::new()).unwrap_err().code(), Code::OutOfRange);
}

/// Put into the registry by hand.
struct Tail;

impl dunlin_service::server::Service for Tail {
    const NAME: &'static str = "test.Bytes";

    fn register(self, registry: &mut dunlin_service::server::Registry) {
        registry.view::<BytesRest>(Place::Inline, |request, reply| match request.view()? {
            [_, rest @ ..] => Ok(reply.send(rest)),
            [] => Err(Status::out_of_range("there is no first byte")),
        });
    }
}
