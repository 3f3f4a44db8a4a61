//! Why the store did not do what it was asked.

use std::fmt::Display;
use std::path::Path;

use rusqlite::ErrorCode;
use rusqlite::types::FromSqlError;
use serde_json::json;

use crate::clock::Timestamp;
use crate::model::{Field, FieldCode, FieldError, NaturalKey, RecordId, Resource, Value, Version};
use crate::words::{grouped, without_error_numbers};

/// Why the store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    pub code: StoreCode,
    /// The cause, and the remedy if there is one, for the operator.
    pub message: String,
}

pub(super) type Result<T, E = StoreError> = std::result::Result<T, E>;

/// What callers tell apart.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreCode {
    /// Nobody reacts to it: the message says all.
    Other,
    /// A mistake or a conflict of the client, not a failure.
    Rejected(Box<Rejection>),
    /// There is no file.
    Missing,
    /// Another version of the program wrote the file.
    OtherSchema,
    Damaged,
    OtherOwner,
    /// The operator must repair the file, its permissions for example.
    Unavailable,
    /// An import or another program has locked the tenant's file, or reads from it for so long that
    /// its WAL cannot be emptied.
    Busy,
    /// The disk is full, or nearly so.
    DiskFull,
    /// The disk refuses to read or write.
    DiskFailed,
    /// The mutation ran into its time limit.
    Interrupted,
    /// The read ran into its deadline.
    TimedOut,
    /// Too many mutations of the tenant wait.
    QueueFull,
    /// The tenant's file has reached its size limit.
    SizeLimit,
    /// The operator has suspended the tenant since the request came.
    Inactive(Inactive),
    /// The moment is before the first one that can be read.
    Gone(Timestamp),
    /// So many records have changed since the moment of the list.
    TooManyChanges(i64),
    NoKey,
    /// The key is in this state, and cannot be changed or replaced.
    KeyEnded(&'static str),
    TooManyKeys,
    /// The session of an admin in the panel ended before the change.
    SessionEnded,
    /// A file of a backup is damaged, or is not as the program makes it.
    Refused,
}

impl StoreError {
    pub fn new(code: StoreCode, message: impl ToString) -> StoreError {
        StoreError { code, message: without_error_numbers(&message.to_string()) }
    }

    pub(crate) fn other(message: impl ToString) -> StoreError {
        StoreError::new(StoreCode::Other, message)
    }

    /// An error about a file or directory that cannot be used because of `cause`.
    pub(crate) fn unusable(path: &Path, cause: impl Display) -> StoreError {
        let message = format!("{} cannot be used: {cause}", path.display());
        StoreError::new(StoreCode::Unavailable, message)
    }

    /// The rejection. A failure stays an error.
    pub fn into_rejection(self) -> Result<Rejection> {
        match self.code {
            StoreCode::Rejected(rejection) => Ok(*rejection),
            _ => Err(self),
        }
    }
}

impl From<Rejection> for StoreError {
    fn from(rejection: Rejection) -> StoreError {
        let message = rejection.message();
        StoreError { code: StoreCode::Rejected(Box::new(rejection)), message }
    }
}

impl From<Inactive> for StoreError {
    fn from(reason: Inactive) -> StoreError {
        StoreError::new(StoreCode::Inactive(reason), "the tenant is inactive")
    }
}

/// A statement failed. The words are for the operator if the operator can remove the cause, and
/// SQLite's own otherwise.
impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        let (code, words) = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => (StoreCode::DiskFull, Some(DISK_IS_FULL)),
            Some(ErrorCode::SystemIoFailure) => {
                (StoreCode::DiskFailed, Some("the disk refuses to read or write"))
            }
            Some(ErrorCode::ReadOnly) => (StoreCode::DiskFailed, Some("the file is read-only")),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                (StoreCode::Busy, Some("another process has locked the file"))
            }
            Some(ErrorCode::OperationInterrupted) => (StoreCode::Interrupted, None),
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                (StoreCode::Damaged, None)
            }
            _ => (StoreCode::Unavailable, None),
        };
        StoreError::new(code, words.map_or_else(|| error.to_string(), str::to_owned))
    }
}

impl From<FromSqlError> for StoreError {
    fn from(error: FromSqlError) -> StoreError {
        rusqlite::Error::from(error).into()
    }
}

pub(super) const DISK_IS_FULL: &str = "the disk is full; free some space";

/// Why a tenant is inactive. A suspension takes precedence over a trial that is over (contract
/// section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inactive {
    /// The operator suspended the tenant.
    Suspended,
    /// The operator moves the tenant to another machine.
    Moving,
    /// The last day of the trial is past.
    TrialOver,
}

/// Why a change is not made. It is a mistake or a conflict of the client, not a failure.
#[derive(Clone, Debug, PartialEq)]
pub enum Rejection {
    InvalidFields(Vec<FieldError>),
    NotFound(&'static Resource, RecordId),
    /// These records have the same value in the field. There may be more.
    AmbiguousRecord(&'static Resource, &'static Field, Vec<RecordId>),
    PreconditionFailed {
        /// The record's version, if there is a record.
        present: Option<Version>,
        /// Whether the client has sent only weak tags, which meet no version.
        has_only_weak_tags: bool,
    },
    /// The record with this id and version is there, which the client does not want to change.
    RecordExists(RecordId, Version),
    /// The field refers to the record of the resource with this id, which does not exist.
    MissingReference(&'static Field, &'static Resource, i64),
    /// No record of the natural key's resource has this value.
    MissingNaturalKey(&'static NaturalKey, Value),
    /// These records have the same value of the natural key. There may be more.
    AmbiguousReference(&'static NaturalKey, Value, Vec<RecordId>),
    /// Members name different records for one reference, as the message says.
    Contradiction(String),
    /// A device of this employee belongs to this customer, and cannot get the named one.
    OtherCustomer {
        employee: i64,
        customer: i64,
        named: Value,
    },
    /// The employee would take so many devices to another customer that the request would change
    /// too many records.
    TooManyDevices {
        employee: RecordId,
        devices: i64,
    },
    /// Other records refer to the record of `resource` that is to be deleted.
    HasDependents {
        resource: &'static Resource,
        /// The database's own message.
        details: String,
        /// How many records of which resource refer to it.
        counts: Vec<(&'static Resource, i64)>,
    },
}

/// The most records that one request changes, with all operations of a batch (contract section 2).
pub(super) const MAX_CHANGED: i64 = 1_000;

/// The most messages about fields in one rejection. Only a body with many custom fields has more.
const MAX_MESSAGES: usize = 20;

impl Rejection {
    /// The code of the contract (section 5).
    pub fn code(&self) -> &'static str {
        match self {
            Rejection::InvalidFields(faults) if has_wrong_type(faults) => "bad_request",
            Rejection::InvalidFields(_) => "validation_failed",
            Rejection::NotFound(..) => "not_found",
            Rejection::AmbiguousRecord(..) | Rejection::AmbiguousReference(..) => {
                "ambiguous_record"
            }
            Rejection::PreconditionFailed { .. } | Rejection::RecordExists(..) => {
                "precondition_failed"
            }
            Rejection::MissingReference(_, target, _) => target.missing_code(),
            Rejection::MissingNaturalKey(key, _) => key.target.missing_code(),
            Rejection::Contradiction(_) | Rejection::OtherCustomer { .. } => "bad_request",
            Rejection::TooManyDevices { .. } | Rejection::HasDependents { .. } => "has_dependents",
        }
    }

    /// The fault and the remedy, for people.
    pub fn message(&self) -> String {
        match self {
            Rejection::InvalidFields(faults) if has_wrong_type(faults) => wrong_types(faults),
            Rejection::InvalidFields(faults) => invalid_values(faults),
            Rejection::NotFound(Resource { name, .. }, RecordId(id)) => {
                format!("There is no {name} with the id {id}. Check the id.")
            }
            Rejection::AmbiguousRecord(resource, field, ids) => format!(
                "Several {} have this {}, such as those with the ids {}. Change one of them by its \
                 id.",
                resource.plural,
                field.name,
                list(ids)
            ),
            Rejection::MissingNaturalKey(NaturalKey { target, key, .. }, value) => format!(
                "There is no {0} with the {1} {2}. Create the {0} first, or correct the value.",
                target.name,
                key.name,
                json!(value)
            ),
            Rejection::AmbiguousReference(NaturalKey { target, key, field, .. }, value, ids) => {
                format!(
                    "Several {} have the {} {}, such as those with the ids {}. Send \"{}\" in place \
                     of it.",
                    target.plural,
                    key.name,
                    json!(value),
                    list(ids),
                    field.name
                )
            }
            Rejection::PreconditionFailed { present: None, .. } => {
                "\"update_by\" finds no record, so none has a version of \"If-Match\". Nothing was \
                 changed. Send the request without \"If-Match\" to create the record."
                    .to_owned()
            }
            Rejection::PreconditionFailed { has_only_weak_tags: true, .. } => {
                "\"If-Match\" has only weak tags (W/\"…\"), which match no version. Nothing was \
                 changed. A proxy that compresses responses may have weakened them. Read the \
                 record, and send its member \"etag\", which is right."
                    .to_owned()
            }
            Rejection::PreconditionFailed { .. } => {
                "The record has another version than those in \"If-Match\". Nothing was changed. \
                 Read the record, decide again, and send its \"etag\"."
                    .to_owned()
            }
            Rejection::RecordExists(RecordId(id), _) => format!(
                "\"update_by\" finds the record with the id {id}, and \"If-None-Match: *\" creates a \
                 record only if there is none. Nothing was changed. To change the record, send the \
                 request without \"If-None-Match\"."
            ),
            Rejection::MissingReference(field, target, id) => target.missing_message(field, *id),
            Rejection::Contradiction(message) => message.clone(),
            Rejection::OtherCustomer { employee, customer, named } => format!(
                "\"customer_id\" was {}, but the employee {employee} works at the customer \
                 {customer}. Leave \"customer_id\" out, or change \"employee_id\".",
                json!(named)
            ),
            Rejection::TooManyDevices { employee: RecordId(employee), devices } => format!(
                "The {} devices of employee {employee} move along, but a request changes at most {} \
                 records. Move in steps: set \"employee_id\" of the devices to null, move the \
                 employee, and give the devices back. Or ask the operator to move the employee by \
                 \"import --update-by\", which has no such limit.",
                grouped(devices.unsigned_abs()),
                grouped(MAX_CHANGED.unsigned_abs())
            ),
            Rejection::HasDependents { resource, counts, .. } => format!(
                "{} to this {}. Delete or reassign the records that refer to it first.",
                who_refer(counts),
                resource.name
            ),
        }
    }
}

fn list(ids: &[RecordId]) -> String {
    ids.iter().map(|RecordId(id)| id.to_string()).collect::<Vec<_>>().join(", ")
}

fn has_wrong_type(faults: &[FieldError]) -> bool {
    faults.iter().any(|fault| fault.code == FieldCode::WrongType)
}

fn wrong_types(faults: &[FieldError]) -> String {
    let mut faults: Vec<&FieldError> = faults.iter().collect();
    faults.sort_by_key(|fault| fault.code != FieldCode::WrongType);
    let mut messages: Vec<String> =
        faults.iter().take(MAX_MESSAGES).map(|fault| fault.message.clone()).collect();
    let hidden = faults.len().saturating_sub(MAX_MESSAGES);
    if hidden > 0 {
        messages.push(format!("{hidden} more values are not valid."));
    }
    messages.join(" ")
}

/// The message of the first field, which a log or a mail may show alone, and the number of the
/// others.
fn invalid_values(faults: &[FieldError]) -> String {
    let first = faults.first().map_or("", |fault| &fault.message);
    match faults.len().saturating_sub(1) {
        0 => first.to_owned(),
        1 => format!("{first} 1 more field is not valid; \"errors\" has both."),
        more => format!("{first} {more} more fields are not valid; \"errors\" has all."),
    }
}

/// `1 employee refers`, `2 employees and 1 hardware record refer`.
pub fn who_refer(counts: &[(&Resource, i64)]) -> String {
    let mut kinds = Vec::new();
    for (Resource { name, plural, .. }, count) in counts {
        kinds.push(match count {
            1 if name == plural => format!("1 {name} record"),
            1 => format!("1 {name}"),
            _ if name == plural => format!("{count} {name} records"),
            _ => format!("{count} {plural}"),
        });
    }
    let verb = if matches!(counts, [(_, 1)]) { "refers" } else { "refer" };
    format!("{} {verb}", kinds.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_explained_without_numbers() {
        let file = rusqlite::Connection::open_in_memory().unwrap();
        let fill =
            "PRAGMA max_page_count = 2; CREATE TABLE t AS SELECT zeroblob(1000000) AS filler";
        let error = file.execute_batch(fill).unwrap_err();
        assert_eq!(StoreError::from(error).message, DISK_IS_FULL);
    }
}
