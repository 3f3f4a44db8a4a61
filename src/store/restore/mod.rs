//! Bringing back what a backup holds, whole or for one tenant while the others are served (contract section 10).
//!
//! Everything is verified before anything is touched, and copied into the data directory before anything is replaced. A
//! tenant's file that is sound gets its new content in one transaction of its own: whoever reads it sees the old rows or
//! the new ones, a server's connections go on, and no id is given twice, since the count of ids is raised while that
//! transaction has the file locked. Only a file that is missing or broken is replaced by name.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use uuid::Uuid;

use super::backup::manifest::{self, digest};
use super::backup::{self, BackupError, BackupKind, LeftOutTenant, Manifest, SavedFile, SavedTenant};
use super::check;
use super::connection::{self, OpenError};
use super::data_dir::NewDataDir;
use super::data_dir_lock::{DataDirLock, DataDirLockError};
use super::error::DatabaseError;
use super::registry::{self, Registry, RegistryError};
use super::schema::{self, Schema};
use super::{page_copy, tenants};

/// What is to be restored.
#[derive(Clone, Copy, Debug)]
pub struct Restore<'a> {
    pub data_dir: &'a Path,
    /// A backup's folder, or one that holds such folders.
    pub source: &'a Path,
    /// One tenant's name; all tenants of the backup without it.
    pub tenant: Option<&'a str>,
    /// Replace what is there.
    pub force: bool,
}

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("{} holds no backup {wanted}", .dir.display())]
    NoBackup { dir: PathBuf, wanted: String },
    #[error("the backup {} does not hold the tenant {tenant}", .folder.display())]
    NotInBackup { folder: PathBuf, tenant: String },
    #[error("the tenant {} was left out of the backup {}: {}", .tenant.name, .folder.display(), .tenant.reason)]
    LeftOut { folder: PathBuf, tenant: LeftOutTenant },
    #[error("the backup is damaged: {} {what}", .path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("the backup was made by a newer version of tenantdesk (schema {found} in {}, this binary knows {known}); use that version", .path.display())]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error("{} would be overwritten; say --force if that is meant", .0.join(", "))]
    WouldOverwrite(Vec<String>),
    #[error("{0}; stop it first, or restore one tenant")]
    InUse(DataDirLockError),
    #[error("{cause}; everything is as it was before")]
    Undone { cause: Box<RestoreError> },
    #[error("{cause}; and what was there could not be brought back ({undoing}): it lies in {}", .kept.display())]
    Stuck { cause: Box<RestoreError>, undoing: Box<RestoreError>, kept: PathBuf },
    #[error("{}: {cause}", .path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("the tenant's file cannot be used: {0}")]
    Database(#[from] DatabaseError),
}

impl From<rusqlite::Error> for RestoreError {
    fn from(error: rusqlite::Error) -> RestoreError {
        RestoreError::Database(error.into())
    }
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    pub folder: PathBuf,
    pub created_at: String,
    pub tenants: Vec<RestoredTenant>,
    /// Where all tenants were asked for: those that the backup lacks. They are as they were.
    pub left_out: Vec<LeftOutTenant>,
    /// Files got the names of others that Litestream copied: it may not see them until it is started anew.
    pub litestream_restart_needed: bool,
}

/// One tenant that was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredTenant {
    pub id: i64,
    pub name: String,
    /// It existed, and its keys, password and state are as they were.
    pub existed: bool,
    pub records: BTreeMap<String, i64>,
}

/// Restores, all of it or nothing.
pub fn restore(wanted: &Restore<'_>) -> Result<Restored, RestoreError> {
    let (folder, manifest) = locate(wanted)?;
    let chosen = choose(&folder, &manifest, wanted.tenant)?;
    let files = verify(&folder, &manifest, &chosen)?;
    let data_dir = NewDataDir::create(wanted.data_dir)?;
    let whole = manifest.kind == BackupKind::All && wanted.tenant.is_none();
    // Kept to the end: no server may start in the middle.
    let _data_dir_lock =
        whole.then(|| DataDirLock::acquire(wanted.data_dir)).transpose().map_err(RestoreError::InUse)?;
    let stage = StagingDir::new(wanted.data_dir)?;
    stage.fill(&folder, &files)?;
    let damaged_registry = whole && wanted.force && stage.set_damaged_registry_aside()?;
    let registry_file = wanted.data_dir.join(registry::FILE);
    let new_registry = damaged_registry || data_dir.has_new_registry();
    let outcome = Registry::create(wanted.data_dir).map_err(RestoreError::from).and_then(|registry| {
        let done = (registry.last_tenant_id()?, apply(wanted, &registry, &stage, &chosen)?);
        if damaged_registry {
            // As far as it can still be read.
            let _ = registry.raise_id_counters(&stage.kept(&registry_file));
        }
        Ok(done)
    });
    let (last_id, (tenants, replaced)) = match outcome {
        Ok(done) => done,
        Err(error) => {
            if damaged_registry {
                stage.put_damaged_registry_back()?;
            }
            return Err(error);
        }
    };
    // What comes under a name that was never used here is new to Litestream too.
    let live = |tenant: &RestoredTenant| tenants::file(&tenants::folder(wanted.data_dir), tenant.id);
    let known = tenants.iter().filter(|tenant| whole || tenant.id <= last_id).map(live);
    let mut reused: Vec<PathBuf> = known.filter(|file| replaced.contains(file)).collect();
    reused.extend(new_registry.then(|| registry_file.clone()));
    let litestream_restart_needed =
        !reused.is_empty() && (is_replicated(&registry_file) || reused.iter().any(|file| is_replicated(file)));
    data_dir.keep();
    let left_out = if wanted.tenant.is_none() { manifest.left_out } else { Vec::new() };
    Ok(Restored { folder, created_at: manifest.created_at, tenants, left_out, litestream_restart_needed })
}

/// Whether Litestream has left a trace: its folder beside a file, or its table in it. What cannot be read has none.
fn is_replicated(file: &Path) -> bool {
    let has_table =
        || connection::open_raw(file).and_then(|connection| connection.table_exists(None, "_litestream_seq"));
    tenants::litestream_folder(file).is_dir() || has_table().unwrap_or(false)
}

/// The backup itself, or the newest in the folder that has what is wanted.
fn locate(wanted: &Restore<'_>) -> Result<(PathBuf, Manifest), RestoreError> {
    let dir = wanted.source;
    let own = dir.join(manifest::NAME);
    if own.try_exists().map_err(at(&own))? {
        return Ok((dir.to_owned(), Manifest::read(dir).map_err(at(&own))?));
    }
    let fits = |manifest: &Manifest| match wanted.tenant {
        Some(name) => manifest.tenant(name).is_some(),
        None => manifest.kind == BackupKind::All,
    };
    backup::list(dir)?.into_iter().find(|(_, manifest)| fits(manifest)).ok_or_else(|| RestoreError::NoBackup {
        dir: dir.to_owned(),
        wanted: wanted.tenant.map_or_else(|| "of all tenants".to_owned(), |name| format!("of the tenant {name}")),
    })
}

fn choose(folder: &Path, manifest: &Manifest, tenant: Option<&str>) -> Result<Vec<SavedTenant>, RestoreError> {
    match tenant {
        None => Ok(manifest.tenants.clone()),
        Some(name) => match manifest.tenant(name) {
            Some(tenant) => Ok(vec![tenant.clone()]),
            None => Err(missing_in(folder, manifest, name)),
        },
    }
}

fn missing_in(folder: &Path, manifest: &Manifest, tenant: &str) -> RestoreError {
    let folder = folder.to_owned();
    match manifest.left_out(tenant) {
        Some(tenant) => RestoreError::LeftOut { folder, tenant: tenant.clone() },
        None => RestoreError::NotInBackup { folder, tenant: tenant.to_owned() },
    }
}

/// The registry and the tenants' files, each as the manifest describes it.
fn verify(
    folder: &Path,
    manifest: &Manifest,
    chosen: &[SavedTenant],
) -> Result<Vec<(SavedFile, &'static Schema)>, RestoreError> {
    let names = chosen.iter().map(|tenant| (format!("tenants/{}.db", tenant.id), &tenants::SCHEMA));
    let mut files = Vec::new();
    for (name, schema) in [(registry::FILE.to_owned(), &registry::SCHEMA)].into_iter().chain(names) {
        let path = folder.join(&name);
        let Some(file) = manifest.file(&name) else {
            return Err(RestoreError::Damaged { path, what: "is not in the manifest".to_owned() });
        };
        if file.schema > schema.version {
            return Err(RestoreError::Newer { path, found: file.schema, known: schema.version });
        }
        let found = File::open(&path).and_then(|content| digest(content, io::sink()));
        compare(&path, file, found)?;
        files.push((file.clone(), schema));
    }
    Ok(files)
}

fn compare(path: &Path, file: &SavedFile, found: io::Result<(u64, String)>) -> Result<(), RestoreError> {
    let what = match found {
        Ok((bytes, sha256)) if bytes == file.bytes && sha256 == file.sha256 => return Ok(()),
        Ok((bytes, _)) if bytes != file.bytes => format!("has {bytes} bytes, the manifest says {}", file.bytes),
        Ok(_) => "is not what the manifest's SHA-256 says".to_owned(),
        Err(error) => format!("cannot be read ({error})"),
    };
    Err(RestoreError::Damaged { path: path.to_owned(), what })
}

/// A tenant whose file is to be filled, and what it is at the moment.
struct Target<'a> {
    saved: &'a SavedTenant,
    /// The id that it has, or had in the backup.
    id: i64,
    existed: bool,
}

/// Finds out what would be overwritten, then does it: tenants that exist first, each in a moment of its own, then those
/// that come new. Also returns the files that were replaced, not written to.
fn apply(
    wanted: &Restore<'_>,
    registry: &Registry,
    stage: &StagingDir,
    chosen: &[SavedTenant],
) -> Result<(Vec<RestoredTenant>, Vec<PathBuf>), RestoreError> {
    let last_id = registry.last_tenant_id()?;
    let mut targets = Vec::new();
    let mut overwritten = Vec::new();
    for saved in chosen {
        let target = match registry.find_tenant(&saved.name)? {
            Some(row) => Target { saved, id: row.id, existed: true },
            None => Target { saved, id: saved.id, existed: false },
        };
        let path = tenants::file(&tenants::folder(wanted.data_dir), target.id);
        // A file of an id that the registry never gave, in the place of a tenant that comes back, is probably its own. An id
        // that it gave is not used again.
        let is_orphaned = saved.id > last_id && path.try_exists().map_err(at(&path))?;
        match (target.existed, is_orphaned) {
            (true, _) => overwritten.push(format!("the tenant {}", saved.name)),
            (false, true) => overwritten.push(path.display().to_string()),
            (false, false) => (),
        }
        targets.push(target);
    }
    if !overwritten.is_empty() && !wanted.force {
        return Err(RestoreError::WouldOverwrite(overwritten));
    }
    let mut undo = Undo { stage, done: Vec::new() };
    match replace_all(wanted.data_dir, registry, stage, &targets, &mut undo) {
        Ok(restored) => Ok((restored, undo.replaced())),
        Err(cause) => Err(undo.run(cause)),
    }
}

fn replace_all(
    data_dir: &Path,
    registry: &Registry,
    stage: &StagingDir,
    targets: &[Target<'_>],
    undo: &mut Undo<'_>,
) -> Result<Vec<RestoredTenant>, RestoreError> {
    let live = |id| tenants::file(&tenants::folder(data_dir), id);
    for target in targets.iter().filter(|target| target.existed) {
        replace(&live(target.id), &stage.tenant(target.saved.id), undo)?;
    }
    let (old, new): (Vec<&Target<'_>>, Vec<_>) = targets.iter().partition(|target| target.existed);
    let report = |id, saved: &SavedTenant, existed| RestoredTenant {
        id,
        name: saved.name.clone(),
        existed,
        records: saved.records.clone(),
    };
    let old = old.iter().map(|target| report(target.id, target.saved, true));
    if new.is_empty() {
        return Ok(old.collect());
    }
    let ids: Vec<i64> = new.iter().map(|target| target.saved.id).collect();
    let imported = registry.import_tenants(&stage.registry(), &ids, |saved, id| -> Result<bool, RestoreError> {
        let path = live(id);
        if path.try_exists().map_err(at(&path))? && id != saved {
            return Ok(false);
        }
        replace(&path, &stage.tenant(saved), undo)?;
        Ok(true)
    })?;
    let new = new.iter().zip(&imported).map(|(target, imported)| report(imported.id, target.saved, false));
    Ok(old.chain(new).collect())
}

/// Puts what is staged in the place of a live file. What was there is kept first.
fn replace(live: &Path, staged: &Path, undo: &mut Undo<'_>) -> Result<(), RestoreError> {
    let connection = match sound(live) {
        Ok(connection) => connection,
        Err(error @ OpenError::Unusable { .. }) => return Err(error.into()),
        Err(_) => return replace_by_name(live, staged, undo),
    };
    let kept = undo.stage.kept(live);
    page_copy::copy_to(&connection, &kept).map_err(OpenError::from)?;
    replace_content(connection, live, staged)?;
    undo.done.push(UndoStep::Content { live: live.to_owned(), kept });
    Ok(())
}

/// The live file, if it can take new content.
fn sound(live: &Path) -> Result<Connection, OpenError> {
    let connection = schema::open(live, &tenants::SCHEMA)?;
    match check::find_problems(&connection).into_iter().next() {
        Some(cause) => Err(OpenError::Damaged { path: live.to_owned(), cause }),
        None => Ok(connection),
    }
}

/// One transaction of the live file, in which every page is replaced by the staged file's. Once the live file is locked,
/// nobody adds a record to it, so its counts of ids can be taken over.
fn replace_content(mut connection: Connection, live: &Path, staged: &Path) -> Result<(), RestoreError> {
    connection::use_long_busy_timeout(&connection)?;
    let staged = connection::open_raw(staged)?;
    connection::attach(&staged, live, "live")?;
    page_copy::replace_content(&staged, &mut connection, || {
        let transaction = staged.unchecked_transaction()?;
        connection::raise_id_counters(&transaction, "live")?;
        keep_litestreams_tables(&transaction)?;
        transaction.commit()
    })?;
    Ok(())
}

/// Litestream's tables in the main database become what they are in `live`: it goes on with that file.
fn keep_litestreams_tables(connection: &Connection) -> rusqlite::Result<()> {
    for (table, _) in litestreams_tables(connection, "main")? {
        connection.execute(&format!("DROP TABLE main.\"{table}\""), [])?;
    }
    for (table, sql) in litestreams_tables(connection, "live")? {
        connection.execute(&sql, [])?;
        connection.execute(&format!("INSERT INTO main.\"{table}\" SELECT * FROM live.\"{table}\""), [])?;
    }
    Ok(())
}

/// Their names, and the statements that make them.
fn litestreams_tables(connection: &Connection, schema: &str) -> rusqlite::Result<Vec<(String, String)>> {
    let mut statement = connection.prepare(&format!(
        "SELECT name, sql FROM {schema}.sqlite_master WHERE type = 'table' AND name LIKE '\\_litestream\\_%' ESCAPE '\\'"
    ))?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// A missing or broken file gives its name to the staged one. Its write-ahead log goes first: to the new file it would be
/// somebody else's.
fn replace_by_name(live: &Path, staged: &Path, undo: &mut Undo<'_>) -> Result<(), RestoreError> {
    if live.try_exists().map_err(at(live))? {
        // As far as it can still be read.
        let _ = connection::open_raw(staged).and_then(|connection| {
            connection::attach(&connection, live, "live")?;
            connection::raise_id_counters(&connection, "live")
        });
    }
    let kept = undo.stage.kept(live);
    undo.done.push(UndoStep::Name { live: live.to_owned(), kept: kept.clone() });
    for (old, aside) in tenants::with_companions(live).iter().zip(tenants::with_companions(&kept)).rev() {
        move_if_there(old, &aside)?;
    }
    fs::rename(staged, live).and_then(|()| connection::sync_folder(live)).map_err(at(live))
}

fn move_if_there(from: &Path, to: &Path) -> Result<(), RestoreError> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(from)(error)),
        _ => Ok(()),
    }
}

/// What was done so far and how to take it back.
struct Undo<'a> {
    stage: &'a StagingDir,
    done: Vec<UndoStep>,
}

enum UndoStep {
    /// `kept` is a copy of what `live` was.
    Content { live: PathBuf, kept: PathBuf },
    /// `kept` is where the file was moved to, if there was one.
    Name { live: PathBuf, kept: PathBuf },
}

impl Undo<'_> {
    /// The files that have given their names to others.
    fn replaced(self) -> Vec<PathBuf> {
        let by_name = |done| match done {
            UndoStep::Name { live, .. } => Some(live),
            UndoStep::Content { .. } => None,
        };
        self.done.into_iter().filter_map(by_name).collect()
    }

    /// Takes everything back after `cause`.
    fn run(self, cause: RestoreError) -> RestoreError {
        let cause = Box::new(cause);
        for done in self.done.into_iter().rev() {
            let undone = match &done {
                UndoStep::Content { live, kept } => schema::open(live, &tenants::SCHEMA)
                    .map_err(RestoreError::from)
                    .and_then(|connection| replace_content(connection, live, kept)),
                UndoStep::Name { live, kept } => put_back(live, kept),
            };
            if let Err(undoing) = undone {
                let kept = self.stage.keep();
                return RestoreError::Stuck { cause, undoing: Box::new(undoing), kept };
            }
        }
        RestoreError::Undone { cause }
    }
}

fn put_back(live: &Path, kept: &Path) -> Result<(), RestoreError> {
    for (new, old) in tenants::with_companions(live).iter().zip(tenants::with_companions(kept)) {
        match fs::remove_file(new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(new)(error)),
            _ => (),
        }
        move_if_there(&old, new)?;
    }
    connection::sync_folder(live).map_err(at(live))
}

/// A folder in the data directory, on the same disk as what it is for: what comes, and what was there. It goes at the end.
struct StagingDir {
    data_dir: PathBuf,
    folder: PathBuf,
    /// Says that somebody is at work in the folder.
    _lock: File,
    stays: std::cell::Cell<bool>,
}

/// How the names of such folders begin.
const STAGING_PREFIX: &str = ".restore-";

/// Where in it lies what was there before.
const REPLACED: &str = "replaced";

/// What a restore that was killed has left. Where it had begun to replace files, they are somebody's only copy, and stay.
fn remove_leftovers(data_dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(data_dir)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(STAGING_PREFIX) || !entry.file_type()?.is_dir() {
            continue;
        }
        let folder = entry.path();
        let replaced = fs::read_dir(folder.join(REPLACED)).map(|mut entries| entries.next().is_some());
        if matches!(replaced, Ok(false)) && File::open(&folder)?.try_lock().is_ok() {
            fs::remove_dir_all(&folder)?;
        }
    }
    Ok(())
}

impl StagingDir {
    fn new(data_dir: &Path) -> Result<StagingDir, RestoreError> {
        remove_leftovers(data_dir).map_err(at(data_dir))?;
        let folder = data_dir.join(format!("{STAGING_PREFIX}{}", Uuid::new_v4()));
        let make = |path: &Path| DirBuilder::new().mode(0o700).create(path).map_err(at(path));
        make(&folder)?;
        let lock = File::open(&folder).map_err(|error| {
            let _ = fs::remove_dir(&folder);
            at(&folder)(error)
        })?;
        // Where the file system knows no locks, nobody else finds it unlocked either.
        let _ = lock.try_lock();
        let stage =
            StagingDir { data_dir: data_dir.to_owned(), folder, _lock: lock, stays: std::cell::Cell::new(false) };
        make(&tenants::folder(&stage.folder))?;
        make(&stage.folder.join(REPLACED))?;
        Ok(stage)
    }

    fn registry(&self) -> PathBuf {
        self.folder.join(registry::FILE)
    }

    fn tenant(&self, id: i64) -> PathBuf {
        tenants::file(&tenants::folder(&self.folder), id)
    }

    /// Where what was at `live` is kept.
    fn kept(&self, live: &Path) -> PathBuf {
        self.folder.join(REPLACED).join(live.file_name().unwrap_or_default())
    }

    /// Copies the backup's files, verifies them on the way, brings them up to this version's schema, and checks their foreign
    /// keys, which copying pages does not.
    fn fill(&self, folder: &Path, files: &[(SavedFile, &'static Schema)]) -> Result<(), RestoreError> {
        for (file, schema) in files {
            let (from, to) = (folder.join(&file.path), self.folder.join(&file.path));
            let target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&to).map_err(at(&to))?;
            let copied = File::open(&from).and_then(|source| digest(source, &target));
            compare(&from, file, copied)?;
            target.sync_all().map_err(at(&to))?;
            let broken = check::broken_foreign_keys(&schema::open(&to, schema)?)?;
            if let Some(what) = broken.into_iter().next() {
                return Err(RestoreError::Damaged { path: from, what: format!("has a broken reference: {what}") });
            }
        }
        Ok(())
    }

    /// Whether there was one that is damaged. It gives way to a new one.
    fn set_damaged_registry_aside(&self) -> Result<bool, RestoreError> {
        let live = self.data_dir.join(registry::FILE);
        match Registry::open(&self.data_dir) {
            Err(OpenError::Damaged { .. }) => (),
            _ => return Ok(false),
        }
        for (old, aside) in
            tenants::with_companions(&live).iter().zip(tenants::with_companions(&self.kept(&live))).rev()
        {
            move_if_there(old, &aside)?;
        }
        Ok(true)
    }

    fn put_damaged_registry_back(&self) -> Result<(), RestoreError> {
        let live = self.data_dir.join(registry::FILE);
        put_back(&live, &self.kept(&live))
    }

    /// The folder stays when this is dropped.
    fn keep(&self) -> PathBuf {
        self.stays.set(true);
        self.folder.join(REPLACED)
    }
}

impl Drop for StagingDir {
    fn drop(&mut self) {
        if !self.stays.get() {
            // Nothing in it is needed any more; the next one has another name.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> RestoreError {
    let path = path.to_owned();
    |cause| RestoreError::File { path, cause }
}

#[cfg(test)]
mod tests;
