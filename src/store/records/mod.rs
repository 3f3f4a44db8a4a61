//! The operations on records. SQL consists of declared names only; values are always bound.
//!
//! | file | its concern |
//! |---|---|
//! | `read` | the statements of a resource, records from rows, and as JSON |
//! | `write` | a change as data, its references and last checks, insert, update, delete |
//! | `list` | pages: the statement, keyset position, JSON |
//! | `change_log` | the entry and the version of each change, pages of entries |
//! | `past` | the records as they were at a moment, and the versions of one record |
//! | `undo` | the former state of records, and the way back to it |

mod change_log;
mod list;
mod past;
mod read;
mod undo;
mod write;

pub use change_log::{
    Actor, ChangeContext, ChangesPage, ChangesQuery, EntryFilter, KeyLabel, Position, Run,
    Selection, Start,
};
pub(crate) use change_log::{remove_old_entries, renew_lineage};
pub use list::Page;
pub use past::{MAX_CHANGED_SINCE, RecordVersion};
pub use read::{Reading, Record};
pub use undo::{Leave, Reason, Undo, Undone};
pub use write::{
    Change, ChangeKind, Changed, Draft, Precondition, ReferenceFault, SentKey, Target, Writing,
    find_referred,
};

#[cfg(test)]
mod tests;
