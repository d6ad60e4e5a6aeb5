//! A guide along routes, of the shape of tonic's example `routeguide`: one method of each kind.
//!
//! ```sh
//! cargo run -p dunlin-examples --bin routeguide -- serve dunlin://127.0.0.1:7471
//! cargo run -p dunlin-examples --bin routeguide -- call dunlin://127.0.0.1:7471
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_examples::routeguide::route_guide_client::RouteGuideClient;
use dunlin_examples::routeguide::route_guide_server::{RouteGuide, RouteGuideServer};
use dunlin_examples::routeguide::{Feature, Point, Rectangle, RouteNote, RouteSummary};
use dunlin_examples::{serve, Failure};
use dunlin_service::{Request, Response, Server, Status, Streaming};
use futures_util::stream::{self, BoxStream, StreamExt};

/// Features that there are: names, latitudes, longitudes.
const FEATURES: [(&str, i32, i32); 4] = [
    (
        "Berkshire Valley Management Area Trail",
        409_146_138,
        -746_188_906,
    ),
    ("Patriots Path", 407_838_351, -746_143_763),
    ("101 New Jersey 10", 408_122_808, -743_999_179),
    ("U.S. 6", 413_628_156, -749_015_468),
];

fn features() -> impl Iterator<Item = Feature> {
    FEATURES
        .into_iter()
        .map(|(name, latitude, longitude)| Feature {
            name: name.into(),
            location: Some(point(latitude, longitude)),
        })
}

fn point(latitude: i32, longitude: i32) -> Point {
    Point {
        latitude,
        longitude,
    }
}

fn is_in(rectangle: &Rectangle, point: &Point) -> bool {
    let (low, high) = (
        rectangle.low.unwrap_or_default(),
        rectangle.high.unwrap_or_default(),
    );
    (low.latitude..=high.latitude).contains(&point.latitude)
        && (low.longitude..=high.longitude).contains(&point.longitude)
}

/// Meters between two points (haversine).
fn distance(from: &Point, to: &Point) -> i32 {
    const EARTH_METERS: f64 = 6_371_000.0;
    let radians = |degrees: i32| (f64::from(degrees) / 1e7).to_radians();
    let half = |a, b| ((radians(a) - radians(b)) / 2.0).sin().powi(2);
    let across = radians(from.latitude).cos() * radians(to.latitude).cos();
    let chord = half(to.latitude, from.latitude) + across * half(to.longitude, from.longitude);
    (EARTH_METERS * 2.0 * chord.sqrt().atan2((1.0 - chord).sqrt())) as i32
}

/// What was left at each latitude and longitude.
type Notes = HashMap<(i32, i32), Vec<RouteNote>>;

#[derive(Default)]
struct Guide {
    notes: Arc<Mutex<Notes>>,
}

#[dunlin_service::async_trait]
impl RouteGuide for Guide {
    type ListFeaturesStream = BoxStream<'static, Result<Feature, Status>>;
    type RouteChatStream = BoxStream<'static, Result<RouteNote, Status>>;

    async fn get_feature(&self, request: Request<Point>) -> Result<Response<Feature>, Status> {
        let asked = request.into_inner();
        let found = features().find(|feature| feature.location == Some(asked));
        Ok(Response::new(found.unwrap_or(Feature {
            name: String::new(),
            location: Some(asked),
        })))
    }

    async fn list_features(
        &self,
        request: Request<Rectangle>,
    ) -> Result<Response<Self::ListFeaturesStream>, Status> {
        let rectangle = request.into_inner();
        let within =
            move |feature: &Feature| is_in(&rectangle, &feature.location.unwrap_or_default());
        Ok(Response::new(
            stream::iter(features().filter(within).map(Ok)).boxed(),
        ))
    }

    async fn record_route(
        &self,
        request: Request<Streaming<Point>>,
    ) -> Result<Response<RouteSummary>, Status> {
        let mut points = request.into_inner();
        let mut summary = RouteSummary::default();
        let mut last = None;
        while let Some(here) = points.message().await? {
            summary.point_count += 1;
            summary.feature_count += i32::from(features().any(|one| one.location == Some(here)));
            summary.distance += last.map_or(0, |last| distance(&last, &here));
            last = Some(here);
        }
        Ok(Response::new(summary))
    }

    async fn route_chat(
        &self,
        request: Request<Streaming<RouteNote>>,
    ) -> Result<Response<Self::RouteChatStream>, Status> {
        let notes = Arc::clone(&self.notes);
        let answers = request.into_inner().flat_map(move |note| match note {
            Err(status) => stream::iter(vec![Err(status)]),
            Ok(note) => {
                let place = note.location.unwrap_or_default();
                let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
                let here = notes.entry((place.latitude, place.longitude)).or_default();
                let before = here.iter().cloned().map(Ok).collect::<Vec<_>>();
                here.push(note);
                stream::iter(before)
            }
        });
        Ok(Response::new(answers.boxed()))
    }
}

async fn call(address: &str) -> Result<(), Failure> {
    let client = RouteGuideClient::connect(address).await?;
    let feature = client.get_feature(point(409_146_138, -746_188_906)).await?;
    println!("feature: {}", feature.into_inner().name);

    let rectangle = Rectangle {
        low: Some(point(400_000_000, -750_000_000)),
        high: Some(point(410_000_000, -740_000_000)),
    };
    let mut listed = client.list_features(rectangle).await?.into_inner();
    while let Some(feature) = listed.message().await? {
        println!("listed: {}", feature.name);
    }

    let route = features().filter_map(|feature| feature.location);
    let summary = client
        .record_route(stream::iter(route.collect::<Vec<_>>()))
        .await?
        .into_inner();
    println!(
        "route: {} points, {} features, {} km",
        summary.point_count,
        summary.feature_count,
        summary.distance / 1000
    );

    let notes = (0..4).map(|number| RouteNote {
        location: Some(point(number % 2, 0)),
        message: format!("note {number}"),
    });
    let mut answers = client.route_chat(stream::iter(notes)).await?.into_inner();
    while let Some(note) = answers.message().await? {
        println!("left before: {}", note.message);
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", address] => {
            let guide = RouteGuideServer::new(Guide::default());
            serve(Server::builder().add_service(guide), address).await
        }
        ["call", address] => call(address).await,
        _ => Err("usage: routeguide serve ADDRESS | call ADDRESS".into()),
    }
}
