//! A service with an application that returns what it received.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};

use http::HeaderMap;
use serde_json::{Value, json};
use tenantdesk::api::{Admission, Job, Lane};
use tenantdesk::clock::Clock;
use tenantdesk::config::Config;
use tenantdesk::http::request::MAX_BODY;
use tenantdesk::http::{ApiError, Body, ErrorCode, Method, Request, Responder, Response};
use tenantdesk::model::TenantId;
use tenantdesk::server::{Application, Intake, Server};

use crate::support::in_process::serve;
use crate::support::raw::Client;
use crate::support::{Reply, until};

/// A running service, the requests that its edge forwarded, and every request that a worker ran.
pub(crate) struct EdgeServer {
    service: Option<Server>,
    pub address: SocketAddr,
    echo: Arc<Echo>,
}

/// It takes a body on every path.
#[derive(Default)]
struct Echo {
    /// Whether every response is 204, so that a client can separate responses.
    is_silent: bool,
    /// The path of every probe, in the order in which the edge took them.
    probes: Mutex<Vec<String>>,
    forwarded: Mutex<Vec<Request>>,
    seen: Mutex<Vec<Request>>,
    occupied: Occupied,
}

impl Application for Echo {
    fn intake(&self, _: &Method, path: &str, _: &HeaderMap) -> Intake {
        if path.starts_with("/probe/") {
            self.probes.lock().unwrap().push(path.to_owned());
        }
        if path == "/probe/occupied" {
            self.occupied.occupy();
        }
        match path == "/healthz" || path.starts_with("/probe/") {
            true => Intake::Health,
            false => Intake::Body(MAX_BODY),
        }
    }

    fn ready(&self) -> Response {
        Response::healthy()
    }

    fn admit(&self, request: &Request, _: &mut Responder) -> Admission {
        self.forwarded.lock().unwrap().push(request.clone());
        if self.is_silent {
            return Admission::Respond(Response::empty(204));
        }
        if request.path == "/stuck" {
            self.occupied.occupy();
        }
        Admission::Wait(lane(request), Job::Panel)
    }

    fn respond(&self, _: Job, request: &Request, reply: Responder) {
        self.seen.lock().unwrap().push(request.clone());
        match request.path.as_str() {
            "/panic" => panic!("on purpose"),
            "/occupied" => {
                self.occupied.occupy();
                reply.send(Response::json(200, &json!({})));
            }
            _ => respond(request, reply),
        }
    }

    fn overloaded(&self, _: Job) -> Response {
        ApiError::overloaded().into()
    }
}

/// The workers and the edge that wait for the release.
#[derive(Default)]
struct Occupied(Mutex<bool>, Condvar);

impl Occupied {
    /// Keeps the thread until the release.
    fn occupy(&self) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |released| !*released).unwrap());
    }

    fn release(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }
}

impl EdgeServer {
    pub(crate) fn start() -> EdgeServer {
        EdgeServer::with(|_| {})
    }

    /// With changed options.
    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> EdgeServer {
        EdgeServer::serving(Echo::default(), change)
    }

    /// Answers every request with 204.
    pub(crate) fn silent(change: impl FnOnce(&mut Config)) -> EdgeServer {
        EdgeServer::serving(Echo { is_silent: true, ..Echo::default() }, change)
    }

    fn serving(echo: Echo, change: impl FnOnce(&mut Config)) -> EdgeServer {
        let mut config =
            Config { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..Config::new("unused") };
        change(&mut config);
        let echo = Arc::new(echo);
        let service = serve(echo.clone(), &config, Clock::system()).unwrap();
        EdgeServer { address: service.address, service: Some(service), echo }
    }

    /// Waits until the edge has forwarded `count` requests. They run, or they wait for their turn.
    pub(crate) fn has_forwarded(&self, count: usize) {
        let forwarded = || self.echo.forwarded.lock().unwrap().len();
        until(&format!("{count} are forwarded"), || (forwarded() >= count).then_some(()));
    }

    /// The requests that the edge has forwarded since the last call.
    pub(crate) fn take_forwarded(&self) -> Vec<Request> {
        std::mem::take(&mut *self.echo.forwarded.lock().unwrap())
    }

    /// Waits until the edge has seen that the clients of `count` forwarded requests have left.
    pub(crate) fn has_seen_leave(&self, count: usize) {
        let forwarded = || self.echo.forwarded.lock().unwrap();
        let left = || forwarded().iter().filter(|request| request.is_abandoned()).count();
        until(&format!("{count} have left"), || (left() >= count).then_some(()));
    }

    /// The path of every request that a worker ran, in order.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.echo.seen.lock().unwrap().iter().map(|request| request.path.clone()).collect()
    }

    /// The path of every probe, in the order in which the edge took them.
    pub(crate) fn probes(&self) -> Vec<String> {
        self.echo.probes.lock().unwrap().clone()
    }

    /// Lets all occupied threads go on, and all later ones at once.
    pub(crate) fn release(&self) {
        self.echo.occupied.release();
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Sends one request on a new connection.
    pub(crate) fn ask(&self, bytes: impl AsRef<[u8]>) -> Reply {
        let mut client = self.connect();
        client.send(bytes);
        client.answer()
    }

    /// Waits until it has failed, and returns why.
    pub(crate) fn failure(mut self) -> String {
        self.service.take().unwrap().wait().unwrap_err().to_string()
    }
}

impl Drop for EdgeServer {
    fn drop(&mut self) {
        self.echo.occupied.release();
        if let Some(service) = self.service.take() {
            let _ = service.stop();
        }
    }
}

/// The first segment of a path such as `/2/a` is the tenant.
fn lane(request: &Request) -> Lane {
    let tenant = request.path.split('/').nth(1).and_then(|segment| segment.parse().ok());
    Lane::Tenant(TenantId(tenant.unwrap_or(1)))
}

/// Responds by path; any other request is returned as JSON.
fn respond(request: &Request, reply: Responder) {
    match request.path.as_str() {
        "/large" => reply.send(Response::new(200, "text/plain", vec![b'x'; 1024 * 1024])),
        _ if request.body == Body::TooLarge => {
            reply.send(Response::from(ApiError::from(ErrorCode::PayloadTooLarge)))
        }
        _ => reply.send(Response::json(200, &described(request))),
    }
}

fn described(request: &Request) -> Value {
    let Body::Whole(body) = &request.body else { return Value::Null };
    let headers = request.headers.iter();
    let headers: Vec<_> =
        headers.map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    json!({
        "path": request.path,
        "query": request.query,
        "headers": headers,
        "body": String::from_utf8_lossy(body),
        "secure": request.secure,
    })
}
