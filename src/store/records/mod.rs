//! The operations on records. SQL consists of declared names only; values are always bound.
//!
//! | file | its concern |
//! |---|---|
//! | `read` | the statements of a resource, records from rows, and as JSON |
//! | `change` | a change as data, its last checks, the reasons to reject it |
//! | `owner` | the customer of a device, which follows its employee |
//! | `undo` | the former state of records, and the way back to it |
//! | `write` | insert, update, delete |
//! | `list` | pages: the statement, keyset position, JSON |
//! | `search` | the search text of a record |
//! | `change_log` | the entry and the version of each change, pages of entries |

mod change;
mod change_log;
mod list;
mod owner;
mod read;
mod search;
mod undo;
mod write;

pub use change::{
    Change, ChangeError, ChangeKind, Changed, Draft, Precondition, Rejection, Target, who_refer,
};
pub use change_log::{Actor, ChangeContext, ChangesPage, ChangesQuery, KeyLabel, Position, Start};
pub(crate) use change_log::{remove_old_entries, renew_lineage};
pub use list::Page;
pub use read::{Reading, Record};
pub use search::fold;
pub use undo::{Leave, Reason, Selection, Undo, UndoError, Undone};
pub use write::Writing;

#[cfg(test)]
mod tests;
