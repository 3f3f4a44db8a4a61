//! A request's way through the gate.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use hyper::{Method, Request, Response};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::Settings;
use super::body::{self, Collected};
use super::client_address::{self, Client, Network};
use super::connection::State;
use super::forward::{self, Failure, Job};
use super::limits::{BODY_BUDGET, HEALTH_TIMEOUT, Limits};
use super::memory_budget::{Allowance, Answers};
use super::response::{self, AnswerBody, Raw};
use super::upstream::Lines;
use super::validate;
use crate::http::access_log;
use crate::http::upstream_protocol::Note;
use crate::http::{ApiError, ProtocolViolation};
use crate::metrics::Metrics;

/// What all connections share.
pub(super) struct Door {
    pub(super) limits: Limits,
    proxies: Vec<Network>,
    lines: Arc<Lines>,
    bodies: Arc<Allowance>,
    answers: Arc<Answers>,
    metrics: Arc<Metrics>,
}

/// An answer, and whether the connection closes after it.
enum Given {
    ByLine { raw: Raw, close: bool },
    Own { response: crate::http::Response, close: bool },
}

impl Given {
    fn refusal(error: ApiError, close: bool) -> Given {
        Given::Own { response: error.into(), close }
    }
}

impl Door {
    pub(super) fn new(settings: &Settings, lines: Arc<Lines>) -> Door {
        Door {
            limits: settings.limits.clone(),
            proxies: settings.proxies.clone(),
            lines,
            bodies: Allowance::new(BODY_BUDGET),
            answers: Arc::new(Answers::default()),
            metrics: Arc::clone(&settings.metrics),
        }
    }

    /// Answers one request: by handing it on, or with a refusal.
    pub(super) async fn answer(
        self: Arc<Door>,
        request: Request<Incoming>,
        peer: IpAddr,
        tls: bool,
        connection: Arc<State>,
    ) -> Response<AnswerBody> {
        let started = Instant::now();
        let (head, body) = request.into_parts();
        let client = client_address::identify(peer, tls, &head.headers, &self.proxies);
        let id = request_id(&head.headers);
        match self.pass(&head, body, client, id, connection.spare).await {
            Given::ByLine { raw, close } => response::pass_on(raw, close, &self.answers, &connection),
            Given::Own { response, close } => {
                self.note(&head, response.status(), started.elapsed(), id, client.address);
                response::own(&response, id, close, &connection)
            }
        }
    }

    async fn pass(&self, head: &Parts, body: Incoming, client: Client, id: Uuid, spare: bool) -> Given {
        let checked = match validate::check(head) {
            Ok(checked) => checked,
            Err(error) => return Given::refusal(error, true),
        };
        let health = is_health(head, &checked.target);
        if spare {
            return if health { healthy(true) } else { Given::refusal(ApiError::overloaded(), true) };
        }
        let mut memory = self.bodies.portion();
        let collecting = body::collect(body, &mut memory);
        let collected = match timeout(self.limits.body_timeout, collecting).await {
            Ok(Ok(collected)) => collected,
            Ok(Err(error)) => return Given::refusal(error, true),
            Err(_) => {
                let slow = ApiError::malformed_request(
                    ProtocolViolation::TooSlow,
                    "The body did not come in time. Send it without long pauses.",
                );
                return Given::refusal(slow, true);
            }
        };
        let (bytes, body_too_large, close) = match collected {
            Collected::Whole(bytes) => (bytes, false, false),
            // Some of the body is unread, so the connection cannot be used again.
            Collected::TooLarge => (Vec::new(), true, true),
        };
        let note = Note { id, client: client.address, secure: client.secure, body_too_large };
        let bytes = forward::rebuild(head, &checked, &note, &bytes);
        let (answer, waiting) = oneshot::channel();
        let head_only = head.method == Method::HEAD;
        let job = Job { bytes, head_only, client: client.address, answer, memory };
        if health { self.check_health(job, waiting, close).await } else { self.hand_on(job, waiting, close).await }
    }

    async fn hand_on(&self, job: Job, waiting: oneshot::Receiver<forward::Outcome>, close: bool) -> Given {
        if self.lines.hand_on(job).is_err() {
            return Given::refusal(ApiError::overloaded(), close);
        }
        match waiting.await {
            Ok(Ok(raw)) => Given::ByLine { raw, close },
            Ok(Err(Failure::Displaced)) => Given::refusal(ApiError::overloaded(), close),
            Ok(Err(Failure::Broken)) | Err(_) => Given::refusal(ApiError::internal(), close),
        }
    }

    /// `/healthz` says that the process serves, in overload too: then the gate says it itself.
    async fn check_health(&self, job: Job, waiting: oneshot::Receiver<forward::Outcome>, close: bool) -> Given {
        if self.lines.is_crowded() {
            return healthy(close);
        }
        match timeout(HEALTH_TIMEOUT, self.hand_on(job, waiting, close)).await {
            Ok(given @ Given::ByLine { .. }) => given,
            _ => healthy(close),
        }
    }

    /// Logs and counts an answer that the gate gave itself.
    fn note(&self, head: &Parts, status: u16, duration: Duration, id: Uuid, client: IpAddr) {
        let (method, path) = (head.method.as_str(), head.uri.path());
        self.metrics.answered(method, path, status, duration);
        access_log::Line { method, path, status, duration, tenant: "", key: "", request_id: id, client }.write();
    }
}

fn is_health(head: &Parts, target: &str) -> bool {
    let path = target.split('?').next();
    path == Some("/healthz") && (head.method == Method::GET || head.method == Method::HEAD)
}

fn healthy(close: bool) -> Given {
    let response = crate::http::Response::json_bytes(200, &br#"{"status":"ok"}"#[..]);
    Given::Own { response: response.header("Cache-Control", "no-store"), close }
}

/// The client's own `X-Request-Id` where it is one UUID, else a new one.
fn request_id(headers: &HeaderMap) -> Uuid {
    let mut sent = headers.get_all("x-request-id").iter();
    let only = sent.next().filter(|_| sent.next().is_none());
    let id = only.and_then(|value| value.to_str().ok()).and_then(|text| text.parse::<Hyphenated>().ok());
    id.map_or_else(Uuid::new_v4, Uuid::from)
}
