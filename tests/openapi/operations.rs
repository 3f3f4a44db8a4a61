//! The operations: their texts, parameters and errors.

use serde_json::{Value, json};
use tenantdesk::api::changes;
use tenantdesk::api::list::{self, MAX_CURSOR, MAX_LIMIT, MAX_SEARCH_LENGTH};
use tenantdesk::api::query::{Filter, MAX_CUSTOM_FILTERS, filters};
use tenantdesk::api::routes::{Action, Endpoint};
use tenantdesk::http::ErrorCode::{self, *};
use tenantdesk::model::validation::CUSTOM_NAME_PATTERN;
use tenantdesk::model::{ALL, EMPLOYEE, Inclusion, Resource, Scope};

use super::records::{FILLED, of_filter};
use super::schema::{ENTITY_TAGS, EXAMPLE_ETAG, EXAMPLE_UUID, reference, title};

const UUID_PATTERN: &str = "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$";

/// The `operationId`, the title and the description.
pub(crate) fn texts(operation: &Endpoint) -> (String, String, String) {
    let (id, summary, about) = match operation.action {
        Action::Create(_) => (
            "create{Resource}",
            "Create {resource}",
            "The response is the new record, and `Location` is its path. With `update_by`, the \
             request changes the record that has the same value in this field, and creates a \
             record if there is none.",
        ),
        Action::Read(_) => (
            "get{Resources}",
            "List {resources}, or read one",
            "With `id`, the response is the record. Without `id`, it is a page of the records that \
             match every filter and contain every word of `q`. In typed clients, look for the \
             member `data`: only a page has it.",
        ),
        Action::Update(_) => (
            "update{Resource}",
            "Change {resource}",
            "Only the fields that the body names change. The response is the whole record.",
        ),
        Action::Delete(_) => (
            "delete{Resource}",
            "Delete {resource}",
            "The response has no body. A record to which others refer is not deleted.",
        ),
        Action::Changes => (
            "listChanges",
            "Follow the change log",
            "An entry for each record that was created, changed or deleted, in the order of the \
             changes. Entries of resources that the key may not read are left out.",
        ),
        Action::Whoami => (
            "getWhoami",
            "Describe the API key",
            "The tenant, the key of the request, and its limit.",
        ),
        Action::Batch => (
            "runBatch",
            "Run a batch",
            "Up to 100 operations in one transaction. If one of them fails, nothing is changed, \
             and the response is its error with its number as `operation`. If the form or the \
             fields of some are wrong, `operations` has all of these. The batch counts as one \
             request against the rate limit, and one `Idempotency-Key` covers all of it.",
        ),
    };
    let fill = |text: &str| match operation.action.resource() {
        Some(resource) => text
            .replace("{Resource}", &title(resource))
            .replace("{Resources}", &super::schema::capitalize(resource.plural))
            .replace("{resource}", resource.name)
            .replace("{resources}", resource.plural),
        None => text.to_owned(),
    };
    (fill(id), fill(summary), format!("{about} {}", needed_scopes(operation)))
}

fn needed_scopes(operation: &Endpoint) -> String {
    let needed: Vec<String> = Scope::all()
        .filter(|scope| operation.scopes().contains(*scope))
        .map(|scope| format!("`{scope}`"))
        .collect();
    match operation.action {
        Action::Batch => "Each operation in it needs its own scope.".to_owned(),
        _ if needed.is_empty() => "Needs no scope.".to_owned(),
        _ => format!("Needs the scope {}.", needed.join(" or ")),
    }
}

/// The errors that are special to an operation, in the order of the statuses. Every operation can
/// also have those of [`common_errors`].
pub(crate) fn special_errors(action: Action) -> Vec<ErrorCode> {
    let write = [BadRequest, InvalidJson, InvalidIdempotencyKey];
    let missing = |resource: &Resource| -> Vec<ErrorCode> {
        let targets = resource.fields.iter().filter_map(|field| field.references);
        targets.map(|target| ErrorCode::named(target.missing_code())).collect()
    };
    let fields = [ValidationFailed, IdempotencyKeyReused];
    // An employee may have too many devices to move.
    let move_errors =
        |resource: &Resource| if *resource == EMPLOYEE { vec![HasDependents] } else { Vec::new() };
    match action {
        Action::Create(resource) => [
            &write[..],
            &move_errors(resource),
            &[AmbiguousRecord, PreconditionFailed],
            &fields,
            &missing(resource),
        ]
        .concat(),
        Action::Read(_) => vec![BadRequest, NotFound, ChangesGone],
        Action::Update(resource) => [
            &write[..],
            &[MissingId, NoUpdatableFields, NotFound],
            &move_errors(resource),
            if resource.natural_references().is_empty() { &[] } else { &[AmbiguousRecord] },
            &[PreconditionFailed],
            &fields,
            &missing(resource),
        ]
        .concat(),
        Action::Delete(resource) => {
            let referring = ALL.iter().flat_map(|one| one.fields);
            let is_referenced =
                referring.filter_map(|field| field.references).any(|target| target == resource);
            let mut errors =
                vec![BadRequest, InvalidIdempotencyKey, MissingId, NotFound, PreconditionFailed];
            errors.extend(is_referenced.then_some(HasDependents));
            errors.push(IdempotencyKeyReused);
            errors
        }
        Action::Changes => vec![BadRequest, ChangesGone],
        Action::Whoami => {
            vec![MissingAuthorization, MalformedApiKey, InvalidApiKey, RevokedApiKey, ExpiredApiKey]
        }
        Action::Batch => [
            &write[..],
            &[MissingId, NoUpdatableFields, NotFound],
            &[HasDependents, AmbiguousRecord, PreconditionFailed],
            &fields,
            &ALL[..2]
                .iter()
                .map(|target| ErrorCode::named(target.missing_code()))
                .collect::<Vec<_>>(),
        ]
        .concat(),
    }
}

/// The errors that any operation can have.
pub(crate) fn common_errors() -> Vec<ErrorCode> {
    let special = |code: &ErrorCode| {
        let actions = [Action::Changes, Action::Batch];
        actions.into_iter().any(|action| special_errors(action).contains(code))
    };
    let mut common: Vec<_> = errors().filter(|code| !special(code)).collect();
    common.insert(0, BadRequest);
    common
}

/// Every error of an operation. A path or a method that does not exist is none.
pub(crate) fn errors() -> impl Iterator<Item = ErrorCode> {
    ErrorCode::all().filter(|code| !matches!(code, EndpointNotFound | MethodNotAllowed | NotReady))
}

/// References to shared parameters, and the operation's own parameters.
pub(crate) fn parameters(action: Action) -> Vec<Value> {
    let mut parameters = Vec::new();
    match action {
        Action::Read(resource) => {
            parameters.push(optional_id(resource));
            parameters.extend(list::parameters(resource).map(|name| of_list(name, resource)));
            parameters.extend(filters(resource).iter().map(|one| filter(one, resource)));
            parameters.extend(shared(&["CustomFilters", "IfNoneMatch"]));
        }
        Action::Create(resource) => {
            let names: Vec<&str> = resource.lookup_fields().map(|field| field.name).collect();
            let about = "Changes the one record that has the body's value in this field, as PUT \
                does. Without such a record, the record is created. If several records have the \
                value, the response is 409 `ambiguous_record`.";
            let mut update_by =
                query("update_by", about, json!({ "type": "string", "enum": names }));
            // Programs that send every parameter of an import send the example, too. The shop's own
            // number is the field that does not change another record.
            let own = names.iter().find(|name| name.ends_with("_number"));
            update_by["example"] = json!(own);
            parameters.push(update_by);
            parameters.extend(shared(&["IdempotencyKey", "IfFound", "IfNew", "Prefer"]));
        }
        Action::Update(_) => {
            parameters.extend(shared(&["Id", "IdempotencyKey", "IfMatch", "Prefer"]))
        }
        Action::Delete(_) => parameters.extend(shared(&["Id", "IdempotencyKey", "IfMatch"])),
        Action::Changes => parameters.extend(changes::PARAMETERS.map(of_changes)),
        Action::Batch => parameters.extend(shared(&["IdempotencyKey", "Prefer"])),
        Action::Whoami => {}
    }
    parameters.extend(shared(&["RequestId"]));
    parameters
}

fn shared(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| reference("parameters", name)).collect()
}

fn query(name: &str, about: &str, schema: Value) -> Value {
    json!({ "name": name, "in": "query", "description": about, "schema": schema })
}

/// A header is optional. Programs may send the example as it stands: no change then takes effect, or
/// it takes effect once. It has no format `uuid`: generated clients would take an object, but a
/// header is a text.
fn header(name: &str, about: &str, schema: Value) -> Value {
    let mut header =
        json!({ "name": name, "in": "header", "description": about, "schema": schema });
    let example = match name {
        "Idempotency-Key" => EXAMPLE_UUID,
        "If-Match" => EXAMPLE_ETAG,
        _ => return header,
    };
    header["example"] = json!(example);
    header
}

/// The parameters in `components`.
pub(crate) fn components() -> Value {
    let id = json!({ "name": "id", "in": "query", "required": true, "description": "The record.",
        "schema": positive(), "example": 1 });
    let name = format!("^custom\\.{}", CUSTOM_NAME_PATTERN.trim_start_matches('^'));
    let custom = json!({ "type": "object", "propertyNames": { "pattern": name },
        "additionalProperties": { "type": "string", "pattern": FILLED },
        "maxProperties": 2 * MAX_CUSTOM_FILTERS });
    let uuid = json!({ "type": "string", "pattern": UUID_PATTERN });
    let tags = json!({ "type": "string", "pattern": ENTITY_TAGS });
    let text = json!({ "type": "string" });
    json!({
        "Id": id,
        "CustomFilters": { "name": "custom", "in": "query", "style": "form", "explode": true,
            "description": "Filters by custom fields, at most 3: `custom.room=2.14` finds the \
                records with this text in the custom field `room`, and `custom.room=null` finds \
                those without it. `custom.rent_to=2027-01-31` finds those with this text or an \
                earlier one by code point, `custom.rent_from` a later one; together they count as \
                one. These filters are slow in a large tenant. No parameter is called `custom`; \
                each member of the object is a parameter.",
            "schema": custom },
        "IdempotencyKey": header("Idempotency-Key", "A new UUID for every new request. A repeat \
            of the request sends the same UUID, and changes nothing twice.", uuid),
        "IfMatch": header("If-Match", "The `etag` of the record as the client knows it. The change \
            is made only if the record still has this version. Several tags have commas between \
            them; `*` is any version.", tags.clone()),
        // Without an example: a request with it would create nothing.
        "IfFound": { "name": "If-Match", "in": "header", "schema": tags, "description": "With \
            `update_by`: the `etag` of the record as the client knows it. The record is changed only \
            if it is found, and still has this version." },
        "IfNoneMatch": header("If-None-Match", "With `id`: the `etag` of the record as the client \
            knows it. If the record still has this version, the response is 304 without a body.",
            text.clone()),
        "IfNew": header("If-None-Match", "With `update_by`: `*` creates the record only if there is \
            none. Otherwise the response is 412, with the id of the record as `error.id`.",
            json!({ "type": "string", "pattern": "^[*]$" })),
        "Prefer": header("Prefer", "`handling=strict` makes unknown members of the body an error. \
            Without it, they are ignored.", text.clone()),
        "RequestId": header("X-Request-Id", "A UUID for this request, which the log has too. Any \
            other value is ignored.", text),
    })
}

fn positive() -> Value {
    json!({ "type": "integer", "format": "int64", "minimum": 1 })
}

fn optional_id(resource: &Resource) -> Value {
    let but = if resource.inclusions().is_empty() { "`at`" } else { "`include` and `at`" };
    let about =
        format!("One record instead of a list. It excludes every other parameter but {but}.");
    query("id", &about, positive())
}

/// No schema has a `default`: generated clients would send the default even if another parameter
/// excludes it.
fn of_list(name: &str, resource: &'static Resource) -> Value {
    let (about, schema) = match name {
        "limit" => (
            "The most records on a page; 50 if absent.",
            json!({ "type": "integer", "minimum": 1, "maximum": MAX_LIMIT }),
        ),
        "cursor" => (
            "The `next_cursor` of the previous page; empty for the first page. `sort`, filters, `q` \
             and `at` must be the same.",
            json!({ "type": "string", "maxLength": MAX_CURSOR }),
        ),
        "sort" => (
            "A field of the filters below, such as `name`, or `-name` for the descending order; `id` \
             if absent. Nulls come first. Texts are ordered by code point, enumerated values by name, \
             and false comes before true. `-` reverses the whole order. Records with the same value \
             are ordered by `id`, in the same direction.",
            sort_schema(resource),
        ),
        "total" => ("Whether the page has `total`, the number of all matching records.", {
            let digits = json!({ "type": "string", "enum": ["1", "0"] });
            json!({ "anyOf": [{ "type": "boolean" }, digits] })
        }),
        "q" => (
            "A record matches if each word occurs in any part of one of its text, e-mail or custom \
             fields. Case is ignored. At most 20 words; a blank `q` is no search.",
            json!({ "type": "string", "maxLength": MAX_SEARCH_LENGTH }),
        ),
        "at" => (
            "A moment of the past: a second that is over, or a date for the end of its last second \
             in UTC. The response is as if the request had come then. With `id`, too.",
            json!({ "anyOf": [{ "type": "string", "format": "date-time" },
                { "type": "string", "format": "date" }] }),
        ),
        "include" => {
            let names: Vec<&str> = resource.inclusions().iter().map(Inclusion::name).collect();
            let items = json!({ "type": "string", "enum": names });
            let schema =
                json!({ "type": "array", "items": items, "minItems": 1, "uniqueItems": true });
            let about = "Adds to each record the records that it belongs to, with commas between \
                the names, or a parameter for each. All records in the response are as they were \
                at one moment. Needs the scope for reading each.";
            // With commas between, in place of a parameter for each item.
            let mut parameter = query(name, about, schema);
            parameter["explode"] = json!(false);
            return parameter;
        }
        unknown => panic!("the list parameter {unknown} has no description"),
    };
    query(name, about, schema)
}

fn sort_schema(resource: &'static Resource) -> Value {
    let (mut orders, mut names) = (Vec::new(), Vec::new());
    for field in resource.sortable_fields() {
        orders.extend([field.name.to_owned(), format!("-{}", field.name)]);
        // Generators derive identifiers from the values, and a leading minus is not valid in one.
        names.extend([field.name.to_owned(), format!("{}_descending", field.name)]);
    }
    json!({ "type": "string", "enum": orders, "x-enum-varnames": names })
}

fn of_changes(name: &str) -> Value {
    let (about, schema) = match name {
        "limit" => (
            "The most entries on a page; 50 if absent.",
            json!({ "type": "integer", "minimum": 1, "maximum": MAX_LIMIT }),
        ),
        "cursor" => (
            "The `next_cursor` of an earlier answer, or `now` for what comes from this moment on. \
             If it is absent or empty, the answer begins with the oldest entry that is kept.",
            json!({ "type": "string", "maxLength": MAX_CURSOR }),
        ),
        "resource" => (
            "The entries of this resource alone.",
            json!({ "type": "string", "enum": ALL.map(|resource| resource.plural) }),
        ),
        "id" => ("With `resource`: the entries of this record alone.", positive()),
        "at_from" | "at_to" => {
            let moment = json!({ "anyOf": [
                { "type": "string", "format": "date-time" }, { "type": "string", "format": "date" },
            ] });
            let about = match name {
                "at_from" => "Only entries with this `at` or a later one.",
                _ => "Only entries with this `at` or an earlier one.",
            };
            (about, moment)
        }
        "key" => (
            "The entries of one key alone: its number, or the name that it had at the change.",
            json!({ "type": "string", "minLength": 1 }),
        ),
        "request_id" => (
            "The entries of this request, batch or command alone.",
            json!({ "type": "string", "format": "uuid" }),
        ),
        "action" => (
            "The entries with this action alone.",
            json!({ "type": "string", "enum": changes::ACTIONS }),
        ),
        unknown => panic!("the parameter {unknown} of the change log has no description"),
    };
    query(name, about, schema)
}

/// A filter of a list by a field of the record.
fn filter(filter: &Filter, resource: &Resource) -> Value {
    let field = filter.field;
    let about = match filter.name.strip_prefix(field.name) {
        Some("_from") => format!("Only records with this `{}` or a later one.", field.name),
        Some("_to") => format!("Only records with this `{}` or an earlier one.", field.name),
        _ if field.is_nullable() => {
            format!("Only records with this `{}`; `null` finds those without one.", field.name)
        }
        _ => format!("Only records with this `{}`.", field.name),
    };
    query(&filter.name, &about, of_filter(resource, filter))
}
