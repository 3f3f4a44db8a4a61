//! The messages of all errors, compared with a golden file for review. A message names the field or
//! parameter, the fault and the remedy.
//!
//! `UPDATE_GOLDEN=1 cargo test --lib messages` updates `tests/golden/messages.txt`.

use serde_json::json;

use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use super::list::{self, write_cursor};
use super::operations::CheckedWrite;
use super::parameters::Query;
use super::rate_limit::RateLimitStatus;
use super::{batch, changes, operations, parameters, pipeline, routes};
use crate::clock::{Clock, Timestamp};
use crate::http::{ApiError, Body, ErrorCode, Method, Request, Responder, StatusCode};
use crate::metrics::Metrics;
use crate::model::json_object::parse_object;
use crate::model::{
    ALL, Access, CUSTOMER, EMPLOYEE, Field, FieldError, HARDWARE, JsonObject, KeysetPosition,
    RecordId, Resource, Scope, Scopes, Value,
};
use crate::store::registry::Inactive;
use crate::store::{Precondition, Rejection, StoreError};

#[test]
fn messages_match_the_golden_file() {
    let mut text = String::from(
        "Every message of an error, in the words that clients read. See src/api/tests.rs.\n",
    );
    for (title, messages) in [
        ("Error codes", error_codes()),
        ("Headers and bodies", requests()),
        ("JSON", syntax()),
        ("Ids and unknown parameters", parameters()),
        ("Lists", lists()),
        ("Changes", change_log()),
        ("Batches", batches()),
        ("Fields", fields()),
    ] {
        let _ = writeln!(text, "\n# {title}\n");
        for (situation, message) in messages {
            let _ = writeln!(text, "{situation}\n    {message}");
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/messages.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        golden == text,
        "a message has changed; UPDATE_GOLDEN=1 cargo test --lib messages shows it as a diff"
    );
}

type Messages = Vec<(String, String)>;

fn parsed(body: &[u8]) -> Result<JsonObject, ApiError> {
    parse_object(body).map_err(|error| operations::invalid_json(&error.to_string()))
}

/// The code and message of an error.
fn failure<T>(outcome: Result<T, ApiError>) -> String {
    let error = failed(outcome);
    format!("{}: {}", error.code().describe().code, error.message())
}

/// An error as a request for customers could cause it.
fn error(code: ErrorCode) -> ApiError {
    match code {
        ErrorCode::MissingAuthorization
        | ErrorCode::MalformedApiKey
        | ErrorCode::InvalidApiKey
        | ErrorCode::RevokedApiKey
        | ErrorCode::ExpiredApiKey => pipeline::unauthorized(code),
        ErrorCode::MissingId
        | ErrorCode::NoUpdatableFields
        | ErrorCode::PayloadTooLarge
        | ErrorCode::InvalidIdempotencyKey
        | ErrorCode::IdempotencyKeyReused
        | ErrorCode::ChangesGone => code.into(),
        ErrorCode::EndpointNotFound => routes::not_found("/v1/hardware.php/12"),
        ErrorCode::PreconditionFailed => precondition_failed(Some(RecordId(7)), false),
        ErrorCode::HasDependents => {
            let details = "FOREIGN KEY constraint failed".to_owned();
            let counts = vec![(&EMPLOYEE, 2), (&HARDWARE, 1)];
            Rejection::HasDependents { resource: &CUSTOMER, details, counts }.into()
        }
        ErrorCode::TenantInactive => ApiError::from(Inactive::TrialOver),
        ErrorCode::TenantUnavailable => StoreError::Unavailable.into(),
        ErrorCode::InsufficientScope => {
            let scope = Scope { resource: &CUSTOMER, access: Access::Write };
            pipeline::insufficient_scope(scope.into())
        }
        ErrorCode::RateLimited => {
            RateLimitStatus { limit: 100, remaining: 0, reset: 1_795_203_060 }.error()
        }
        ErrorCode::MethodNotAllowed => ApiError::method_not_allowed("GET, HEAD, PUT"),
        ErrorCode::InvalidJson => failed(
            parse_object(b"{\"name\": \"Eva\",}")
                .map_err(|error| operations::invalid_json(&error.to_string())),
        ),
        ErrorCode::NotFound => Rejection::NotFound(&CUSTOMER, RecordId(7)).into(),
        ErrorCode::AmbiguousRecord => {
            let ids = vec![RecordId(7), RecordId(12)];
            Rejection::AmbiguousRecord(&CUSTOMER, &CUSTOMER.fields[1], ids).into()
        }
        ErrorCode::BadRequest => unknown_parameter(),
        ErrorCode::ValidationFailed => Rejection::InvalidFields(invalid_fields(&CUSTOMER)).into(),
        ErrorCode::CustomerNotFound => missing_reference(&EMPLOYEE),
        ErrorCode::EmployeeNotFound => missing_reference(&HARDWARE),
        ErrorCode::UnsupportedMediaType => {
            let plain = request(Method::POST, "", &[("content-type", "text/plain")], b"{}");
            failed(check(&plain))
        }
        ErrorCode::MalformedRequest => {
            let message = "The request could not be read as one HTTP/1.1 message. \
                           Use an HTTP client library.";
            ApiError::malformed_request(StatusCode::BAD_REQUEST, message)
        }
        ErrorCode::InternalError => ApiError::internal(),
        ErrorCode::Overloaded => ApiError::overloaded(),
        ErrorCode::NotReady => ApiError::not_ready("the data directory is not writable"),
    }
}

fn precondition_failed(id: Option<RecordId>, has_only_weak_tags: bool) -> ApiError {
    let resource = &CUSTOMER;
    Rejection::PreconditionFailed { resource, id, present: None, has_only_weak_tags }.into()
}

/// The error for a record of `resource` with a reference to a missing record.
fn missing_reference(resource: &'static Resource) -> ApiError {
    let referenced = resource.fields.iter().find_map(|field| Some((field, field.references?)));
    referenced.map_or_else(ApiError::internal, |(field, target)| {
        Rejection::MissingReference(field, target, 7).into()
    })
}

/// The errors for every required field being absent.
fn invalid_fields(resource: &'static Resource) -> Vec<FieldError> {
    let required = resource.fields.iter().filter(|field| field.required);
    required.map(Field::missing).collect()
}

fn unknown_parameter() -> ApiError {
    let query = Query::parse(Some("cutsomer_id=7"));
    failed(query.and_then(|query| query.only(&["limit", "customer_id"])))
}

/// The error of a call that fails.
fn failed<T>(outcome: Result<T, ApiError>) -> ApiError {
    outcome.err().expect("the request must fail")
}

fn error_codes() -> Messages {
    let mut messages: Messages = ErrorCode::all()
        .map(|code| (code.describe().code.to_owned(), error(code).message().to_owned()))
        .collect();
    messages.push((
        "tenant_inactive, suspended".to_owned(),
        ApiError::from(Inactive::Suspended).message().to_owned(),
    ));
    for (fault, error) in [("size limit", StoreError::SizeLimit), ("disk", StoreError::DiskFull)] {
        let message = ApiError::from(error).message().to_owned();
        messages.push((format!("tenant_unavailable, {fault}"), message));
    }
    let timed_out = ApiError::from(StoreError::TimedOut).message().to_owned();
    messages.push(("bad_request, a list of over 5 seconds".to_owned(), timed_out));
    let weak = precondition_failed(Some(RecordId(7)), true).message().to_owned();
    messages.push(("precondition_failed, weak tags".to_owned(), weak));
    let nothing = precondition_failed(None, false).message().to_owned();
    messages.push(("precondition_failed, no record".to_owned(), nothing));
    let any_of = pipeline::insufficient_scope(Scopes::read_only()).message().to_owned();
    messages.push(("insufficient_scope, any of several".to_owned(), any_of));
    messages
}

fn request(method: Method, query: &str, headers: &[(&str, &str)], body: &[u8]) -> Request {
    let mut request = Request::new(method, CUSTOMER.path, Clock::system().now());
    request.query = (!query.is_empty()).then(|| query.to_owned());
    let headers =
        headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    request.headers = headers.collect();
    request.body = Body::Whole(body.to_vec());
    request
}

const JSON: (&str, &str) = ("content-type", "application/json");

/// Checks a request for customers.
fn check(request: &Request) -> Result<CheckedWrite, ApiError> {
    let metrics = Arc::new(Metrics::new(routes::label));
    let (mut reply, _) = Responder::new(request, Clock::system(), metrics);
    operations::check_write(request, &CUSTOMER, &mut reply)
}

fn requests() -> Messages {
    let create = |headers: &[(&str, &str)], body: &[u8]| {
        failure(check(&request(Method::POST, "", headers, body)))
    };
    let update =
        |query: &str, body: &[u8]| failure(check(&request(Method::PUT, query, &[JSON], body)));
    let key = |values: &[&str]| {
        let headers: Vec<(&str, &str)> =
            values.iter().map(|value| ("idempotency-key", *value)).collect();
        failure(parameters::parse_key(&request(Method::POST, "", &headers, b"")))
    };
    let if_match = |values: &[&str]| {
        let headers: Vec<(&str, &str)> = values.iter().map(|value| ("if-match", *value)).collect();
        match parameters::precondition(&request(Method::PUT, "", &headers, b"")) {
            Precondition::Unreadable(message) => {
                failure::<()>(Err(Rejection::UnreadablePrecondition(message).into()))
            }
            readable => panic!("{readable:?}"),
        }
    };
    [
        ("If-Match: 7", if_match(&["7"])),
        ("If-Match twice", if_match(&["*", "*"])),
        ("no Content-Type", create(&[], b"{}")),
        ("Content-Type: text/plain", create(&[("content-type", "text/plain")], b"{}")),
        ("Content-Type twice", create(&[JSON, JSON], b"{}")),
        ("Content-Encoding: gzip", create(&[JSON, ("content-encoding", "gzip")], b"{}")),
        ("Idempotency-Key: 7", key(&["7"])),
        ("Idempotency-Key twice", key(&["7", "7"])),
        ("POST with ?id=1", failure(check(&request(Method::POST, "id=1", &[JSON], b"{}")))),
        (
            "POST with ?update_by=nmae",
            failure(check(&request(Method::POST, "update_by=nmae", &[JSON], b"{}"))),
        ),
        (
            "POST with ?update_by=customer_number",
            failure(check(&request(
                Method::POST,
                "update_by=customer_number",
                &[JSON],
                b"{\"name\": \"Eva\"}",
            ))),
        ),
        ("PUT of {}", update("id=1", b"{}")),
        ("PUT of a number for a text", update("id=1", br#"{"city": 10115}"#)),
        ("PUT of U+0000 in a text", update("id=1", br#"{"city": "a\u0000b"}"#)),
        ("POST of two wrong fields", create(&[JSON], br#"{"email": "x", "status": "new"}"#)),
        (
            "POST of unknown members, strict",
            create(
                &[JSON, ("prefer", "handling=strict")],
                br#"{"id": 7, "nmae": "A", "x\u202e": 1}"#,
            ),
        ),
    ]
    .map(|(situation, message)| (situation.to_owned(), message))
    .into()
}

fn syntax() -> Messages {
    let bodies: [&[u8]; 15] = [
        b"",
        b"null",
        b"[1]",
        b"\"text\"",
        b"{} {}",
        b"{'name': 1}",
        b"{\"name\": \"A\",}",
        b"{\"name\" \"A\"}",
        b"{\"name\": \"A\"",
        b"{\n  \"name\": \"A\n\"}",
        b"{\"name\": tru}",
        b"{\"cost\": 01}",
        b"{\"name\": \"\\ud800\"}",
        b"{\"name\": \"\\x\"}",
        b"{\"name\": \"\xff\"}",
    ];
    let mut messages: Messages = bodies
        .iter()
        .map(|body| {
            (
                format!("body: {}", String::from_utf8_lossy(body).escape_debug()),
                failure(parsed(body)),
            )
        })
        .collect();
    let nested = format!("{{\"a\": {}{}}}", "[".repeat(128), "]".repeat(128));
    messages.push(("129 levels of nesting".to_owned(), failure(parsed(nested.as_bytes()))));
    messages
}

fn parameters() -> Messages {
    let delete = |query: &str| {
        (format!("DELETE ?{query}"), failure(check(&request(Method::DELETE, query, &[], b""))))
    };
    ["", "id=", "id=0", "id=01", "id=-1", "id=x", "id=1&id=2", "id=1&name=A", "%ff=1", "id=%ff"]
        .map(delete)
        .into()
}

fn lists() -> Messages {
    let queries: [(&'static Resource, &str); 32] = [
        (&CUSTOMER, "cutsomer_number=7"),
        (&CUSTOMER, "page=2"),
        (&CUSTOMER, "limit=0"),
        (&CUSTOMER, "limit=201"),
        (&CUSTOMER, "limit=ten"),
        (&CUSTOMER, "total=yes"),
        (&CUSTOMER, "sort=notes"),
        (&CUSTOMER, "sort=-"),
        (&CUSTOMER, "q=1+2+3+4+5+6+7+8+9+10+11+12+13+14+15+16+17+18+19+20+21"),
        (&CUSTOMER, "cursor=x"),
        (&CUSTOMER, "name="),
        (&CUSTOMER, "status=new"),
        (&CUSTOMER, "status=+"),
        (&CUSTOMER, "customer_since=2026-02-30"),
        (&CUSTOMER, "customer_since_from=null"),
        (&CUSTOMER, "created_at=2026-11-20"),
        (&CUSTOMER, "created_at=2026-11-20T20:30:00+01:00"),
        (&CUSTOMER, "created_at_to=yesterday"),
        (&CUSTOMER, "email=eva+shop@ada.example"),
        (&EMPLOYEE, "customer_id=x"),
        (&EMPLOYEE, "is_active=yes"),
        (&EMPLOYEE, "is_active="),
        (&HARDWARE, "type=car"),
        (&HARDWARE, "customer_id=x"),
        (&HARDWARE, "cutsomer_id=1"),
        (&HARDWARE, "sort=customer"),
        (&HARDWARE, "purchase_cost_cents=1.5"),
        (&HARDWARE, "purchase_date_to="),
        (&HARDWARE, "include=customer,employe"),
        (&HARDWARE, "include=employee,customer"),
        (&EMPLOYEE, "include=customer"),
        (&CUSTOMER, "include=customer"),
    ];
    let parse = |resource, query: &str| {
        Query::parse(Some(query)).and_then(|query| list::parse(resource, &query, Scopes::default()))
    };
    let mut messages: Messages = queries
        .into_iter()
        .map(|(resource, query)| {
            (format!("{}?{query}", resource.path), failure(parse(resource, query)))
        })
        .collect();
    let long = format!("q={}", "a".repeat(201));
    messages.push(("a search of 201 characters".to_owned(), failure(parse(&CUSTOMER, &long))));
    let list = parse(&CUSTOMER, "sort=name").expect("the query is valid");
    let cursor = write_cursor(
        &KeysetPosition { value: Value::Text("A".to_owned()), id: RecordId(1) },
        &list,
    );
    let other = failure(parse(&CUSTOMER, &format!("sort=-name&cursor={cursor}")));
    messages.push(("a cursor of another list".to_owned(), other));
    messages
}

fn change_log() -> Messages {
    let list =
        list::parse(&CUSTOMER, &Query::default(), Scopes::default()).expect("the query is valid");
    let of_a_list =
        write_cursor(&KeysetPosition { value: Value::Integer(1), id: RecordId(1) }, &list);
    let queries = [
        "limit=0",
        "cursor=x",
        "resource=cars",
        "resource=",
        "id=7",
        "resource=customers&id=x",
        "ressource=customers",
        "total=true",
    ];
    let parse = |query: &str| {
        Query::parse(Some(query))
            .and_then(|query| changes::parse(&query, Scopes::every(), Timestamp::from_unix(0)))
    };
    let message = |query: &str| failure(parse(query));
    let mut messages: Messages =
        queries.map(|query| (format!("/changes.php?{query}"), message(query))).into();
    messages.push(("the cursor of a list".to_owned(), message(&format!("cursor={of_a_list}"))));
    messages
}

fn batches() -> Messages {
    let operation = |members: &str| format!(r#"{{"operations": [{{{members}}}]}}"#);
    let post = |body: &str| {
        operation(&format!(r#""method": "POST", "path": "/employees.php", "body": {body}"#))
    };
    let bodies = [
        "{}".to_owned(),
        r#"{"operations": {}}"#.to_owned(),
        r#"{"operations": []}"#.to_owned(),
        format!(r#"{{"operations": [{}0]}}"#, "0,".repeat(100)),
        r#"{"operations": [{}], "operation": []}"#.to_owned(),
        r#"{"operations": [7]}"#.to_owned(),
        operation(""),
        operation(r#""method": "GET", "path": "/customers.php?id=1""#),
        operation(r#""method": "POST""#),
        operation(r#""method": "POST", "path": "/changes.php""#),
        operation(r#""method": "POST", "paht": "/customers.php""#),
        operation(r#""method": "POST", "path": "/customers.php", "body": [], "if_match": 7"#),
        operation(r#""method": "POST", "path": "/customers.php", "body": []"#),
        operation(r#""method": "DELETE", "path": "/customers.php""#),
        post(r#"{"customer_id": {"result": 0}}"#),
        post(r#"{"customer_id": {"result": "0"}}"#),
        post(r#"{"customer_id": {"result": 0, "of": 1}}"#),
        post(r#"{"customer_id": {}, "email": "eva@shop.example"}"#),
    ];
    let message = |body: &str| {
        let request = request(Method::POST, "", &[JSON], body.as_bytes());
        failure(batch::check(&request, Scopes::every()))
    };
    let shown = |body: &str| body.chars().take(120).collect::<String>();
    let mut messages: Messages =
        bodies.iter().map(|body| (format!("/batch.php {}", shown(body)), message(body))).collect();
    let if_match = r#""method": "DELETE", "path": "/customers.php?id=1", "if_match": "7""#;
    let checked = batch::check(
        &request(Method::POST, "", &[JSON], operation(if_match).as_bytes()),
        Scopes::every(),
    );
    assert!(checked.is_ok(), "the record is looked for first");
    let mut large = request(Method::POST, "", &[JSON], b"");
    large.body = Body::TooLarge;
    messages.push((
        "/batch.php with a body that is too large".to_owned(),
        failure(batch::check(&large, Scopes::every())),
    ));
    messages
}

/// Every field with every kind of invalid value. Of messages that differ in the field or in numbers
/// alone, the first.
fn fields() -> Messages {
    let long = "x".repeat(5001);
    let inputs = [
        ("null", json!(null)),
        ("\"\"", json!("")),
        ("\"x\"", json!("x")),
        ("12.0", serde_json::from_str("12.0").unwrap()),
        ("true", json!(true)),
        ("[]", json!([])),
        ("{}", json!({})),
        ("5001 characters", json!(long)),
    ];
    let (mut messages, mut shapes) = (Messages::new(), HashSet::new());
    for resource in ALL {
        for field in resource.fields {
            let mut add = |situation: &str, message: String| {
                let shape = message.replace(field.name, "");
                if shapes.insert(shape.replace(|letter: char| letter.is_ascii_digit(), "")) {
                    messages
                        .push((format!("{} {} {situation}", resource.name, field.name), message));
                }
            };
            if field.required {
                add("not sent", field.missing().message);
            }
            for (shown, input) in &inputs {
                let message = match field.check(input) {
                    Ok(_) => continue,
                    Err(faults) => {
                        let text = |fault: &FieldError| {
                            format!("{}: {}", fault.code.as_str(), fault.message)
                        };
                        faults.iter().map(text).collect()
                    }
                };
                add(shown, message);
            }
        }
    }
    messages
}
