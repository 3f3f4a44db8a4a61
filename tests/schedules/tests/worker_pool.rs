//! Requests on their way through tiny_http, the scheduler and the workers.

use std::net::IpAddr;
use std::panic;

use parking_lot::Mutex;
use schedules::explore::{explore, finds};
use schedules::faults::Fault;
use schedules::http::error::Response;
use schedules::http::request::Request;
use schedules::http::responder::Responder;
use schedules::http::scheduler::Lane;
use schedules::http::worker_pool::{Handler, Job, WorkerPool};
use schedules::stand_ins::monitor::Monitor;
use schedules::stand_ins::oneshot::Receiver;
use schedules::stand_ins::program::clock::{Clock, Moment};
use schedules::stand_ins::program::metrics::Metrics;
use schedules::stand_ins::program::model::TenantId;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Arc, mpsc};
use shuttle::thread;

/// A tenant runs one job at a time.
const WORKERS: usize = 3;

const ANSWERED: u16 = 200;
const FAILED: u16 = 500;
const OVERLOADED: u16 = 503;

/// A pool whose requests do what their path says, for the tenant that their query names.
struct Fixture {
    pool: WorkerPool,
    metrics: Arc<Metrics>,
    /// Whether requests for `/slow` may end.
    release: Arc<Monitor<bool>>,
}

impl Fixture {
    fn new() -> Fixture {
        let (writer, mutations) = mpsc::channel::<Responder>();
        thread::spawn(move || mutations.iter().for_each(|reply| reply.send(Response(ANSWERED))));
        let writer = Mutex::new(writer);
        let metrics = Arc::new(Metrics::default());
        let release = Arc::new(Monitor::new(false));
        let released = Arc::clone(&release);
        let handler: Handler = Arc::new(move |request: Request, responder: Responder| {
            let lane = match request.query.as_deref() {
                None => {
                    responder.send(Response(ANSWERED));
                    return None;
                }
                Some("panel") => Lane::Passwords,
                Some(tenant) => Lane::Tenant(TenantId(tenant.parse().unwrap())),
            };
            let writer = writer.lock().clone();
            let released = Arc::clone(&released);
            let run = move |request: Request, reply: Responder| match request.path.as_str() {
                "/read" => {
                    thread::yield_now();
                    reply.send(Response(ANSWERED));
                }
                "/mutate" => writer.send(reply).unwrap(),
                // Without the panic hook, which takes it for the end of the scenario.
                "/panic" => panic::resume_unwind(Box::new("as asked")),
                _ => {
                    drop(released.wait_until(|is_released| *is_released));
                    reply.send(Response(ANSWERED));
                }
            };
            let rejection = || Response(OVERLOADED);
            Some(Job { lane, request, responder, run: Box::new(run), rejection })
        });
        let pool = WorkerPool::start(handler, WORKERS, Arc::clone(&metrics)).unwrap();
        Fixture { pool, metrics, release }
    }

    fn send(&self, client: u8, path: &str, query: Option<&str>) -> Receiver<Response> {
        let mut request = Request::new(http::Method::GET, path, Moment::default());
        request.client = IpAddr::from([192, 0, 2, client]);
        request.query = query.map(str::to_owned);
        let (reply, response) = Responder::new(&request, Clock, Arc::clone(&self.metrics));
        self.pool.submit(request, reply);
        response
    }

    /// A request of any kind, and the status that it gets unless there is no room for it.
    fn send_any(&self, client: u8) -> (Receiver<Response>, u16) {
        let mut rng = thread_rng();
        let (path, status) =
            [("/read", ANSWERED), ("/mutate", ANSWERED), ("/panic", FAILED)][rng.gen_range(0..3)];
        let query = [Some("1"), Some("1"), Some("2"), Some("panel"), None][rng.gen_range(0..5)];
        (self.send(client, path, query), if query.is_none() { ANSWERED } else { status })
    }
}

/// Clients of three addresses send several requests each. Some leave before the response. Two
/// watchdogs are among them.
fn every_request_is_answered() {
    let fixture = Arc::new(Fixture::new());
    let client = |number| {
        let fixture = Arc::clone(&fixture);
        thread::spawn(move || {
            let sent: Vec<_> = (0..3).map(|_| fixture.send_any(number)).collect();
            for (response, expected) in sent {
                if thread_rng().gen_ratio(1, 4) {
                    drop(response);
                    continue;
                }
                let status = response.wait().expect("a response").status();
                assert!([expected, OVERLOADED].contains(&status), "{status}, not {expected}");
            }
        })
    };
    let clients = [1, 2, 3].map(client);
    for _ in 0..2 {
        assert_eq!(fixture.pool.watchdog().wait(), Some(()));
    }
    for client in clients {
        client.join().unwrap();
    }
    // The requests of clients that have left end too.
    let metrics = Arc::clone(&fixture.metrics);
    drop(fixture);
    assert_eq!(metrics.busy_workers.get(), 0);
}

/// A tenant sends two requests that end when all requests of another tenant have their responses.
fn one_slow_tenant_delays_no_other() {
    let fixture = Fixture::new();
    let slow = [4, 5].map(|client| fixture.send(client, "/slow", Some("2")));
    let others = [1, 2].map(|client| fixture.send(client, "/read", Some("1")));
    for response in others {
        assert_eq!(response.wait(), Some(Response(ANSWERED)));
    }
    fixture.release.change_for_all(|is_released| *is_released = true);
    for response in slow {
        assert_eq!(response.wait(), Some(Response(ANSWERED)));
    }
}

/// The pool stops while requests wait in every queue. All are answered, and all threads end.
fn a_stop_answers_all_that_wait() {
    let fixture = Arc::new(Fixture::new());
    let clients = [1, 2].map(|number| {
        let fixture = Arc::clone(&fixture);
        thread::spawn(move || {
            let sent: Vec<_> = (0..3).map(|_| fixture.send_any(number)).collect();
            drop(fixture);
            for (response, expected) in sent {
                let status = response.wait().expect("a response").status();
                assert!([expected, FAILED, OVERLOADED].contains(&status), "{status}");
            }
        })
    });
    drop(fixture);
    for client in clients {
        client.join().unwrap();
    }
}

#[test]
fn every_request_is_answered_in_all_schedules() {
    explore(every_request_is_answered);
}

#[test]
fn one_slow_tenant_delays_no_other_in_all_schedules() {
    explore(one_slow_tenant_delays_no_other);
}

#[test]
fn a_stop_answers_all_that_wait_in_all_schedules() {
    explore(a_stop_answers_all_that_wait);
}

#[test]
fn lost_requests_are_found() {
    finds(Fault::RequestsStayInTheOutbox, every_request_is_answered);
    finds(Fault::RestOfAClientIsLost, every_request_is_answered);
    finds(Fault::DroppedWithoutAnswer, every_request_is_answered);
    finds(Fault::WatchdogIsForgotten, every_request_is_answered);
}

#[test]
fn jobs_that_wait_forever_are_found() {
    finds(Fault::JobKeepsItsPlace, every_request_is_answered);
    finds(Fault::PanicEndsTheWorker, every_request_is_answered);
    finds(Fault::OneLaneIsServed, one_slow_tenant_delays_no_other);
    finds(Fault::NobodyReceives, one_slow_tenant_delays_no_other);
}

#[test]
fn a_stop_that_does_not_end_is_found() {
    finds(Fault::StopWakesNobody, a_stop_answers_all_that_wait);
}
