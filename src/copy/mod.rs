//! The copy of the databases that a Litestream process keeps, and its confirmation of changes (contract section 16).
//!
//! A change is answered with success only when the copy has it. A file that the copy has not confirmed within [`PATIENCE`] is behind:
//! its changes are refused at once, and a thread asks once a second whether the copy has caught up.
//!
//! | file | its concern |
//! |---|---|
//! | `control_socket` | requests to Litestream |
//! | `status` | what Litestream says of the copy |
//! | `suspension` | the operator's decision to do without the copy for a while |

mod control_socket;
mod status;
mod suspension;

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub use control_socket::{ControlSocket, SocketError};
pub use status::{CopyStatus, DatabaseStatus, MIN_VERSION, Version};
pub use suspension::Suspension;

use crate::metrics::Metrics;

/// How long the confirmation of a change is waited for (contract section 16).
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long the confirmation of a command that changes whole files is waited for: Litestream has to copy all of them.
pub const BULK_PATIENCE: Duration = Duration::from_mins(5);

/// The pause before a request to Litestream is repeated. It finds a new file about a quarter of a second after its creation.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The time from one trial to the next while files are behind, and the longest time that one takes.
const TRIAL_PERIOD: Duration = Duration::from_secs(1);

/// Why a change is not answered with success.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The copy has not caught up with an earlier change. Nothing was changed.
    #[error("the copy does not confirm changes{}, and nothing was changed", in_brackets(.0))]
    Unavailable(Option<String>),
    /// The change was made on this machine, and the copy may lack it.
    #[error("the change was made, but the copy has not confirmed it{}", in_brackets(.0))]
    Unconfirmed(Option<String>),
}

fn in_brackets(cause: &Option<String>) -> String {
    cause.as_ref().map_or_else(String::new, |cause| format!(" ({cause})"))
}

/// The copy of a data directory.
#[derive(Debug)]
pub struct ConfirmedCopy {
    socket: ControlSocket,
    suspension: Suspension,
    metrics: Arc<Metrics>,
    behind: Mutex<Behind>,
    /// Whether `behind` has files. Without any the lock is not needed.
    is_behind: AtomicBool,
}

/// The files that the copy has not confirmed. While there are any, a thread makes trials.
#[derive(Debug, Default)]
struct Behind {
    files: BTreeSet<PathBuf>,
    /// The file of the last trial.
    last_tried: PathBuf,
}

impl ConfirmedCopy {
    /// The copy of `data_dir` that the Litestream process behind `socket` keeps.
    pub fn new(socket: ControlSocket, data_dir: &Path, metrics: Arc<Metrics>) -> ConfirmedCopy {
        ConfirmedCopy {
            socket,
            suspension: Suspension::of(data_dir),
            metrics,
            behind: Mutex::default(),
            is_behind: AtomicBool::new(false),
        }
    }

    /// Returns whether the operator has suspended the copy: changes are answered without it.
    pub fn is_suspended(&self) -> bool {
        self.suspension.is_active()
    }

    /// The number of files whose last change the copy has not confirmed.
    pub fn files_behind(&self) -> usize {
        self.behind.lock().files.len()
    }

    /// Returns whether a change to the file `database` may begin: not if it is behind.
    ///
    /// # Errors
    ///
    /// [`CopyError::Unavailable`].
    pub fn admit(&self, database: &Path) -> Result<(), CopyError> {
        let refused = self.lacks(database) && !self.is_suspended();
        if refused { Err(CopyError::Unavailable(None)) } else { Ok(()) }
    }

    /// Checks before a command that the copy confirms the file `database`.
    ///
    /// # Errors
    ///
    /// [`CopyError::Unavailable`].
    pub fn check(&self, database: &Path) -> Result<(), CopyError> {
        match self.ask(database, Instant::now() + PATIENCE, |_| !self.is_suspended()) {
            Err(_) if self.is_suspended() => Ok(()),
            outcome => outcome.map_err(|error| CopyError::Unavailable(Some(error.to_string()))),
        }
    }

    /// Returns when the copy has everything that was committed to the file `database`, at the latest [`PATIENCE`] after `committed`. At
    /// once if the file is behind, or if the copy is suspended.
    ///
    /// # Errors
    ///
    /// [`CopyError::Unconfirmed`]. The file is behind from then on.
    pub fn confirm(self: &Arc<ConfirmedCopy>, database: &Path, committed: Instant) -> Result<(), CopyError> {
        if self.is_suspended() {
            return Ok(());
        }
        if self.lacks(database) {
            return Err(CopyError::Unconfirmed(None));
        }
        self.confirm_by(database, committed + PATIENCE)
    }

    /// The same with [`BULK_PATIENCE`], for a command that has changed the whole file.
    ///
    /// # Errors
    ///
    /// [`CopyError::Unconfirmed`].
    pub fn confirm_bulk(self: &Arc<ConfirmedCopy>, database: &Path) -> Result<(), CopyError> {
        if self.is_suspended() { Ok(()) } else { self.confirm_by(database, Instant::now() + BULK_PATIENCE) }
    }

    /// Waits until the copy has everything that is committed to the file `database`, also while the copy is suspended.
    ///
    /// # Errors
    ///
    /// [`SocketError`] if it does not within [`BULK_PATIENCE`], or if Litestream cannot be reached or does not know the file within
    /// [`PATIENCE`].
    pub fn catch_up(&self, database: &Path) -> Result<(), SocketError> {
        let reached_by = Instant::now() + PATIENCE;
        self.ask(database, Instant::now() + BULK_PATIENCE, |error| {
            let is_reached =
                !matches!(error, SocketError::Connection { .. } | SocketError::Rejected { status: 404, .. });
            is_reached || Instant::now() < reached_by
        })
    }

    fn confirm_by(self: &Arc<ConfirmedCopy>, database: &Path, deadline: Instant) -> Result<(), CopyError> {
        let began = Instant::now();
        let Err(error) = self.ask(database, deadline, |_| !self.is_suspended()) else {
            self.metrics.copy_confirmations.add(began.elapsed());
            return Ok(());
        };
        // It may have been suspended meanwhile.
        if self.is_suspended() {
            return Ok(());
        }
        self.metrics.copy_failures.add(1);
        self.set_behind(database, &error);
        Err(CopyError::Unconfirmed(Some(error.to_string())))
    }

    /// Asks until the copy confirms the file, also where Litestream does not know it yet or is started again meanwhile. `goes_on` tells
    /// whether to ask again after an error.
    fn ask(
        &self,
        database: &Path,
        deadline: Instant,
        goes_on: impl Fn(&SocketError) -> bool,
    ) -> Result<(), SocketError> {
        let database = absolute(database)?;
        let mut earlier: Option<SocketError> = None;
        loop {
            let error = match self.socket.sync(&database, deadline) {
                Ok(()) => return Ok(()),
                // The deadline may have ended the last attempt. An earlier error says more.
                Err(SocketError::NoResponse) => earlier.take().unwrap_or(SocketError::NoResponse),
                Err(error) => error,
            };
            if Instant::now() + RETRY_PAUSE >= deadline || !goes_on(&error) {
                return Err(error);
            }
            earlier = Some(error);
            thread::sleep(RETRY_PAUSE);
        }
    }

    /// Has Litestream read the log of the file `database`, whether or not the copy can have it.
    ///
    /// # Errors
    ///
    /// [`SocketError`] if Litestream does not within [`PATIENCE`].
    pub fn read_log(&self, database: &Path) -> Result<(), SocketError> {
        self.socket.read_log(&absolute(database)?, Instant::now() + PATIENCE)
    }

    /// Returns whether Litestream may run.
    pub fn may_run(&self) -> bool {
        self.socket.may_be_served(Instant::now() + PATIENCE)
    }

    /// Has Litestream close a file and open it anew. Does nothing if Litestream does not run, or does not know the file: it then opens
    /// the present file by itself.
    ///
    /// # Errors
    ///
    /// [`SocketError`] if Litestream does not respond.
    pub fn reopen(&self, database: &Path) -> Result<(), SocketError> {
        match self.socket.reopen(&absolute(database)?, Instant::now() + PATIENCE) {
            Err(SocketError::Rejected { .. } | SocketError::Connection { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    fn lacks(&self, database: &Path) -> bool {
        self.is_behind.load(Ordering::Acquire) && self.behind.lock().files.contains(database)
    }

    /// Logs the first file that is behind, not each file and change.
    fn set_behind(self: &Arc<ConfirmedCopy>, database: &Path, cause: &SocketError) {
        let mut behind = self.behind.lock();
        if behind.files.is_empty() {
            tracing::error!(file = %database.display(), %cause, "the copy does not confirm changes; they are refused");
            let copy = Arc::downgrade(self);
            // Without a thread for trials every change is a trial.
            if thread::Builder::new().name("copy-trials".to_owned()).spawn(move || make_trials(&copy)).is_err() {
                return;
            }
        }
        behind.files.insert(database.to_owned());
        self.is_behind.store(true, Ordering::Release);
    }

    /// Asks for the next file that is behind. Returns whether files are still behind.
    fn try_next(&self) -> bool {
        let Some(next) = self.behind.lock().next() else { return false };
        // A file that was deleted has nothing to confirm.
        let is_deleted = !next.exists();
        let is_confirmed = !is_deleted
            && absolute(&next).and_then(|file| self.socket.sync(&file, Instant::now() + TRIAL_PERIOD)).is_ok();
        let mut behind = self.behind.lock();
        if is_confirmed {
            // The copy works. What else is behind is confirmed, or found behind again, with its next change.
            behind.files.clear();
        } else if is_deleted {
            behind.files.remove(&next);
        }
        let is_behind = !behind.files.is_empty();
        if !is_behind {
            self.is_behind.store(false, Ordering::Release);
            tracing::info!("the copy confirms changes again");
        }
        is_behind
    }
}

impl Behind {
    /// The file of the next trial: the one after the last, in turn.
    fn next(&mut self) -> Option<PathBuf> {
        let after = (Bound::Excluded(self.last_tried.as_path()), Bound::Unbounded);
        let next = self.files.range::<Path, _>(after).next().or(self.files.first())?.clone();
        self.last_tried.clone_from(&next);
        Some(next)
    }
}

/// Makes one trial in each [`TRIAL_PERIOD`] until no file is behind. The thread holds only a weak reference.
fn make_trials(copy: &Weak<ConfirmedCopy>) {
    let mut last = Instant::now();
    loop {
        thread::sleep(TRIAL_PERIOD.saturating_sub(last.elapsed()));
        last = Instant::now();
        let is_behind = copy.upgrade().is_some_and(|copy| copy.try_next());
        if !is_behind {
            return;
        }
    }
}

/// Litestream compares paths as texts.
fn absolute(database: &Path) -> Result<PathBuf, SocketError> {
    std::path::absolute(database).map_err(|cause| SocketError::Connection { path: database.to_owned(), cause })
}
