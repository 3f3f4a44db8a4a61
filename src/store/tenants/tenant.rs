//! One tenant's open file.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use r2d2::{Pool, PooledConnection};
use scheduled_thread_pool::ScheduledThreadPool;

use super::file_health::FileHealth;
use super::leftovers;
use super::maintenance;
use super::open_file::OpenFile;
use super::readers::{self, ReaderManager};
use super::shared::{STALLED, Shared};
use super::writer::Writer;
use crate::metrics::Metrics;
use crate::semaphore::Semaphore;
use crate::store::connection::{self, OpenError};
use crate::store::error::{DatabaseError, MutationError, StoreError};
use crate::store::log_tail;
use crate::store::records::{self, Reading, Writing};
use crate::store::schema::{self, Schema};

/// One tenant's open file.
pub struct Tenant {
    file: OpenFile,
    schema: &'static Schema,
    readers: Pool<ReaderManager>,
    read_permits: Semaphore,
    writer: Arc<Writer>,
    maintenance: Arc<ScheduledThreadPool>,
    health: Arc<FileHealth>,
    metrics: Arc<Metrics>,
    _counted: CountGuard,
}

impl std::fmt::Debug for Tenant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenant").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Counts one while it lives.
#[derive(Debug)]
struct CountGuard(Arc<AtomicUsize>);

impl CountGuard {
    fn new(count: &Arc<AtomicUsize>) -> CountGuard {
        count.fetch_add(1, Ordering::Relaxed);
        CountGuard(Arc::clone(count))
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Tenant {
    /// Opens and checks the file at `path`, and migrates it if its schema is older.
    pub(super) fn open(path: &Path, shared: &Shared, health: &Arc<FileHealth>) -> Result<Tenant, OpenError> {
        if let Some(confirmer) = &shared.confirmer {
            log_tail::recover(path, confirmer.copy())?;
        }
        // Opened here, not in the pool: the pool would try again in the background and keep the caller waiting.
        let first = schema::open(path, shared.schema)?;
        health.log.check_replayed(&first, path)?;
        // Reading the schema cached as many pages as there are tables and indexes; few of them are read again.
        connection::release_cache(&first);
        let file = OpenFile::new(path).map_err(|error| connection::unusable(path, error))?;
        Ok(Tenant {
            file,
            schema: shared.schema,
            readers: readers::pool(
                connection::reader_manager(path),
                first,
                (Arc::clone(&shared.budget), Arc::clone(health)),
                &shared.opener,
            ),
            read_permits: Semaphore::new(shared.max_reads),
            writer: Arc::new(Writer::new(path.to_owned(), shared, Arc::clone(health))),
            maintenance: Arc::clone(&shared.maintenance),
            health: Arc::clone(health),
            metrics: Arc::clone(&shared.metrics),
            _counted: CountGuard::new(&shared.open),
        })
    }

    /// Whether the path still names the file that is open.
    pub(super) fn is_current(&self) -> bool {
        self.file.is_current()
    }

    /// Runs `work` on a connection that only reads.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if the file cannot be read or does not respond, [`StoreError::Internal`] if a statement failed
    /// for another reason.
    pub fn read<T>(&self, work: impl FnOnce(&Reading<'_>) -> Result<T, DatabaseError>) -> Result<T, StoreError> {
        let _permit = self.read_permits.acquire(STALLED).ok_or(StoreError::Unavailable)?;
        let mut connection = self.reader()?;
        let reading = Reading::new(&connection);
        let outcome = work(&reading);
        let has_found_hidden = reading.has_found_hidden();
        connection.update_usage();
        drop(connection);
        if has_found_hidden {
            leftovers::remove_in_background(self.file.path(), self.schema, || self.writer.may_write_log());
        }
        self.metrics.lock_waits.add(connection::take_lock_waits());
        match outcome {
            Ok(value) => {
                self.health.could_read();
                Ok(value)
            }
            Err(DatabaseError(error)) => Err(self.health.reading(&error)),
        }
    }

    fn reader(&self) -> Result<PooledConnection<ReaderManager>, StoreError> {
        if let Some(connection) = self.readers.try_get() {
            return Ok(connection);
        }
        self.metrics.pool_waits.add(1);
        self.readers.get().map_err(|error| {
            self.health.cannot_read(&error);
            StoreError::Unavailable
        })
    }

    /// Runs `work` in a transaction of the tenant's one writer and passes the outcome to `done`, on this thread or another: what
    /// `work` returned once it is on disk, what it rejected, or why nothing was changed.
    pub fn mutate<T, E>(
        &self,
        work: impl FnOnce(&Writing<'_>) -> Result<T, MutationError<E>> + Send + 'static,
        done: impl FnOnce(Result<Result<T, E>, StoreError>) + Send + 'static,
    ) where
        T: Send + 'static,
        E: Send + 'static,
    {
        self.writer.submit(work, done);
        maintenance::schedule(&self.writer, &self.maintenance);
    }

    /// Counts the search segments after a moment and has them merged if there are many: a server that ended, or an import, left them.
    /// A tenant that is closed by then is not opened for it.
    pub(super) fn check_segments_later(self: &Arc<Tenant>) {
        const MOMENT: Duration = Duration::from_secs(1);
        let tenant = Arc::downgrade(self);
        self.maintenance.execute_after(MOMENT, move || {
            let Some(tenant) = tenant.upgrade() else { return };
            if let Ok(segments) = tenant.read(|reading| Ok(records::most_segments(reading.connection())?)) {
                tenant.writer.due_maintenance().set_segments(segments);
                maintenance::schedule(&tenant.writer, &tenant.maintenance);
            }
        });
    }

    /// The segments of the search table that has most.
    pub(super) fn search_segments(&self) -> u64 {
        self.writer.due_maintenance().segments()
    }

    /// Frees page caches and closes extra connections, as far as they are idle. With `also_writer` the writer's is closed too.
    pub(super) fn release_memory(&self, also_writer: bool) {
        readers::release_memory(&self.readers);
        self.writer.release_memory(also_writer);
    }
}
