//! Contract section 1: the paths, and the headers of every response.

use std::collections::HashSet;

use serde_json::json;

use crate::support::{TestServer, uuid};

#[test]
fn paths_are_compared_as_they_were_sent() {
    let (server, api) = TestServer::with_api();
    let unknown = "
        /customers.php/ /customers /Customers.php /customers%2Ephp /customers.php%20
        //customers.php /./customers.php /v1/../customers.php /v1 /v1/ /v2/customers.php
        /v1/v1/customers.php /V1/customers.php /v1//customers.php /v1/healthz /v1/readyz
        /v1/api_keys.php /healthz/ /index.html /customers.phpx /customers.php;a=1
    ";
    for path in unknown.split_whitespace() {
        api.get(path).fails_with(404, "endpoint_not_found");
        server.anonymous().get(path).fails_with(404, "endpoint_not_found");
    }
    api.post("/suppliers.php", json!({"name": "x"})).fails_with(404, "endpoint_not_found");
}

#[test]
fn the_root_leads_to_the_docs() {
    let server = TestServer::start();
    for (method, path) in [("GET", "/?whatever=1"), ("HEAD", "/"), ("GET", "/docs/")] {
        let reply = server.anonymous().call(method, path).send().is(302);
        assert_eq!(reply.header("Location"), Some("/docs"));
    }
}

#[test]
fn health_and_readiness_need_no_key_and_ignore_parameters() {
    let server = TestServer::start();
    let anyone = server.anonymous();
    for path in ["/healthz", "/readyz", "/healthz?verbose=1&verbose=1", "/readyz?x=%FF"] {
        assert_eq!(anyone.get(path).found(), json!({"status": "ok"}));
        let head = anyone.head(path).is(200);
        assert_eq!(head.header("Content-Type"), Some("application/json; charset=utf-8"));
        assert_eq!(server.with_key("nonsense").get(path).found(), json!({"status": "ok"}));
    }
}

#[test]
fn a_wrong_method_outside_the_record_paths_is_405() {
    let server = TestServer::start();
    for path in ["/healthz", "/readyz", "/"] {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "get"] {
            server.anonymous().call(method, path).send().fails_with(405, "method_not_allowed");
        }
    }
}

#[test]
fn options_is_405_with_or_without_a_key() {
    let (server, api) = TestServer::with_api();
    let preflight = api.call("OPTIONS", "/customers.php").header("Origin", "https://shop.example");
    let preflight = preflight.header("Access-Control-Request-Method", "GET");
    preflight.send().fails_with(405, "method_not_allowed");
    for path in ["/customers.php", "/v1/batch.php", "/whoami.php"] {
        server.anonymous().call("OPTIONS", path).send().fails_with(405, "method_not_allowed");
    }
    api.call("GET", "/customers.php").header("Origin", "https://shop.example").send().is(200);
}

#[test]
fn a_uuid_in_the_clients_own_request_id_is_taken_over_and_nothing_else() {
    let server = TestServer::start();
    let request_id = |path: &str, own: &str| {
        let reply = server.anonymous().call("GET", path).header("X-Request-Id", own).send();
        reply.header("X-Request-Id").unwrap().to_lowercase()
    };
    let plain = uuid();
    for id in [&plain, &plain.to_uppercase(), "00000000-0000-0000-0000-000000000000"] {
        for path in ["/healthz", "/customers.php", "/nowhere"] {
            assert_eq!(request_id(path, id), id.to_lowercase());
        }
    }
    let near = [
        "7".to_owned(),
        format!("{{{plain}}}"),
        format!("urn:uuid:{plain}"),
        plain.replace('-', ""),
        format!("{plain}0"),
        "g0000000-0000-0000-0000-000000000000".to_owned(),
    ];
    let ids: HashSet<String> = near.iter().map(|own| request_id("/healthz", own)).collect();
    assert_eq!(ids.len(), near.len(), "each request has an id of its own");
    assert!(near.iter().all(|own| !ids.contains(own)), "{ids:?}");
}

#[test]
fn head_answers_as_get_does_without_a_body() {
    let (server, api) = TestServer::with_api();
    api.customer("One");
    api.customer("Two");
    for target in [
        "/customers.php",
        "/customers.php?limit=1",
        "/customers.php?id=1",
        "/customers.php?id=9",
        "/nowhere",
    ] {
        let (get, head) = (api.get(target), api.head(target));
        assert_eq!(head.status, get.status, "{target}");
        assert!(head.body.is_empty());
        for name in ["Content-Type", "Content-Length", "Link", "Cache-Control"] {
            assert_eq!(head.header(name), get.header(name), "{name} of {target}");
        }
    }
    let refused = server.anonymous().head("/customers.php").is(401);
    assert_eq!(refused.header("X-Content-Type-Options"), Some("nosniff"));
}

#[test]
fn the_reference_is_compressed_and_asked_for_again_only_once_it_has_changed() {
    let server = TestServer::start();
    let anyone = server.anonymous();
    for path in ["/docs", "/openapi.json", "/docs/api.md", "/docs/tenantdesk.py"] {
        for path in [path, &format!("/v1{path}")] {
            let get = |encodings: &str, known: &str| {
                let call = anyone.call("GET", path).header("Accept-Encoding", encodings);
                call.header("If-None-Match", known).send()
            };
            let (plain, packed) = (get("identity", ""), get("br, gzip;q=0.8", ""));
            assert_eq!(plain.header("Content-Encoding"), None);
            assert_eq!(packed.header("Content-Encoding"), Some("gzip"));
            assert!(packed.body.starts_with(&[0x1f, 0x8b]), "{path}");
            assert!(packed.body.len() < plain.body.len(), "{path}");
            assert_ne!(plain.header("ETag"), packed.header("ETag"), "a version for each encoding");
            for (reply, encodings) in [(plain, "identity"), (packed, "gzip")] {
                assert_eq!(reply.header("Cache-Control"), Some("no-cache"));
                assert_eq!(reply.header("Vary"), Some("Accept-Encoding"));
                let unchanged = get(encodings, reply.header("ETag").unwrap()).is(304);
                assert!(unchanged.body.is_empty());
                for name in ["ETag", "Cache-Control", "Vary"] {
                    assert_eq!(unchanged.header(name), reply.header(name), "{name} of {path}");
                }
            }
        }
    }
}

#[test]
fn the_script_of_the_reference_is_always_compressed() {
    let server = TestServer::start();
    let anyone = server.anonymous();
    let get = |encodings: &str| {
        let call = anyone.call("GET", "/docs/scalar.js");
        call.header("Accept-Encoding", encodings).send().is(200)
    };
    for reply in [get("identity"), get("gzip")] {
        assert_eq!(reply.header("Content-Encoding"), Some("gzip"));
        assert_eq!(reply.header("Content-Type"), Some("text/javascript; charset=utf-8"));
        assert!(reply.body.len() < 1_600_000);
    }
}
