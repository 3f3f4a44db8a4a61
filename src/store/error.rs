//! Why the store did not do what it was asked.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use serde_json::json;

use crate::clock::Timestamp;
use crate::model::{Field, FieldCode, FieldError, NaturalKey, RecordId, Resource, Value, Version};
use crate::words::{grouped, without_error_numbers};

/// Why a database cannot be opened. The texts are for the operator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    /// `serve` and `restore` migrate it; every other command refuses it (contract section 11).
    #[error(
        "{} was written by an older version of tenantdesk (schema {found}, this binary needs \
         {known}); start the service once, which migrates it; if the service has started already, \
         its log says why the migration failed", .path.display()
    )]
    Older { path: PathBuf, found: u32, known: u32 },
    #[error(
        "{} was written by a version of tenantdesk before 1.0.0 (schema {found}); let tenantdesk \
         1.0.0 serve the data directory once, or restore the backup with 1.0.0; then this version \
         can use the data", .path.display()
    )]
    TooOld { path: PathBuf, found: u32 },
    #[error(
        "{} was written by a newer version of tenantdesk (schema {found}, this binary knows \
         {known}); use that version", .path.display()
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error("{} is damaged or no database: {cause}", .path.display())]
    Damaged { path: PathBuf, cause: String },
    #[error("{} belongs to {owner}; run: {cure}", .path.display())]
    OtherOwner { path: PathBuf, owner: String, cure: String },
    /// Permissions, locks, a full disk, a failed migration. `kind` is what a request is told.
    #[error("{} cannot be used: {cause}", .path.display())]
    Unusable { path: PathBuf, cause: String, kind: StoreError },
}

impl OpenError {
    /// What a request that needs the file is told.
    pub(super) fn kind(&self) -> StoreError {
        match self {
            OpenError::Unusable { kind, .. } => *kind,
            _ => StoreError::Unavailable,
        }
    }

    pub(crate) fn unusable(path: &Path, cause: impl ToString) -> OpenError {
        let cause = without_error_numbers(&cause.to_string());
        OpenError::Unusable { path: path.to_owned(), cause, kind: StoreError::Unavailable }
    }
}

/// A statement failed. The text is SQLite's own. Modules outside `store/` pass the error on and do
/// not look into it.
pub type DatabaseError = rusqlite::Error;

/// Says why a statement failed, in words for the operator if the operator can remove the cause.
pub fn explain(error: &DatabaseError) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "the disk is full; free some space".to_owned(),
        Some(ErrorCode::SystemIoFailure) => "the disk refuses to read or write".to_owned(),
        Some(ErrorCode::ReadOnly) => "the file is read-only".to_owned(),
        Some(ErrorCode::DatabaseBusy) => "another process has locked the file".to_owned(),
        _ => error.to_string(),
    }
}

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

/// Why a request's read or mutation was not done. The cause is in the log already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// The tenant's file is missing, damaged, of another schema or read-only: the operator must
    /// repair it.
    Unavailable,
    /// An import or another program has locked the tenant's file, or reads from it for so long that
    /// its WAL cannot be emptied.
    Busy,
    /// Too many mutations of the tenant wait.
    QueueFull,
    /// The mutation ran into its time limit.
    Interrupted,
    /// The tenant's file has reached its size limit.
    SizeLimit,
    /// The disk is full, or nearly so.
    DiskFull,
    /// The operator has suspended the tenant since the request came.
    Inactive(Inactive),
    /// The read ran into its deadline.
    TimedOut,
    /// The moment is before the first one that can be read.
    Gone(Timestamp),
    /// So many records have changed since the moment of the list.
    TooManyChanges(i64),
    /// The program failed, not the file.
    Internal,
}

impl StoreError {
    /// The kind of a failed statement of a mutation.
    pub(super) fn of(error: &DatabaseError) -> StoreError {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy,
            Some(ErrorCode::DiskFull) => StoreError::DiskFull,
            Some(ErrorCode::OperationInterrupted) => StoreError::Interrupted,
            _ => StoreError::Unavailable,
        }
    }
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
    /// A device with an employee cannot get the named customer, as the message says.
    OtherCustomer(String),
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
            Rejection::Contradiction(_) | Rejection::OtherCustomer(_) => "bad_request",
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
            Rejection::Contradiction(message) | Rejection::OtherCustomer(message) => {
                message.clone()
            }
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

/// Why a change is not made. The caller rolls back.
#[derive(Debug)]
pub enum ChangeError {
    Rejected(Rejection),
    Database(DatabaseError),
}

impl From<Rejection> for ChangeError {
    fn from(rejection: Rejection) -> ChangeError {
        ChangeError::Rejected(rejection)
    }
}

impl From<DatabaseError> for ChangeError {
    fn from(error: DatabaseError) -> ChangeError {
        ChangeError::Database(error)
    }
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
        assert_eq!(explain(&error), "the disk is full; free some space");
    }
}
