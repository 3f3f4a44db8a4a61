//! The model of a disk: what a power loss can leave of the changes that were recorded.
//!
//! The model is strict:
//!
//! - A write is durable if its file was synced after the write.
//! - A *name* is a new, renamed or removed file or directory. It is durable if its directory was
//!   synced. The sync of a file does not make its name durable.
//! - A rename is atomic. It is durable with the sync of the directory that gets the name.
//! - Each sector that is not durable may be on the disk or not.
//!
//! After a failed sync, its pages may be on the disk or not. A later sync does not change that,
//! because the system takes the pages for clean. A page is certain again when it was written once
//! more and synced. Names are otherwise: a file system keeps a journal of them, so a later sync of
//! the directory makes them durable.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::recorder::{Kind, Log, Record};
use crate::support::random::Random;

/// The size of the pages that the system keeps of a file.
const PAGE: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(usize),
    Directory(usize),
}

#[derive(Clone, Default)]
struct File {
    durable: Arc<Vec<u8>>,
    current: Arc<Vec<u8>>,
    /// The changes since the last sync, each with the number of its record.
    pending: Vec<(usize, Change)>,
    /// Pages whose sync failed, with their content at that time.
    doubtful: BTreeMap<usize, Vec<u8>>,
}

#[derive(Clone)]
enum Change {
    Write { offset: usize, bytes: Arc<[u8]> },
    Truncate(usize),
}

#[derive(Clone, Default)]
struct Directory {
    durable: BTreeMap<String, Node>,
    current: BTreeMap<String, Node>,
}

/// A change of names that is not durable. A name is the number of its directory, and the text.
#[derive(Clone)]
enum NameChange {
    Add((usize, String), Node),
    Remove((usize, String), Node),
    Rename((usize, String), (usize, String), Node),
}

/// A disk at one moment.
#[derive(Clone)]
pub(crate) struct Disk {
    files: Vec<File>,
    /// The first is the root.
    directories: Vec<Directory>,
    names: Vec<NameChange>,
    /// The file or directory of each inode. A number is used again after its file was removed.
    inodes: HashMap<u64, Node>,
    records: usize,
}

/// The part of the disk that a power loss removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Only what was synced.
    Unsynced,
    /// Nothing.
    Nothing,
    /// Content that was not synced. All names are there.
    Content,
    /// Names whose directory was not synced. All content is there.
    Names,
    /// A random part of the names and of the sectors of this size.
    Random { sector: usize, seed: u64 },
}

/// The files and directories of a disk, by their path below the root; a directory has no content.
pub(crate) type Image = BTreeMap<String, Option<Arc<Vec<u8>>>>;

impl Disk {
    /// The disk that holds what is in `root`, all of it durable.
    pub(crate) fn of(root: &Path) -> Disk {
        let mut disk = Disk {
            files: Vec::new(),
            directories: vec![Directory::default()],
            names: Vec::new(),
            inodes: HashMap::new(),
            records: 0,
        };
        disk.inodes.insert(root.metadata().unwrap().ino(), Node::Directory(0));
        disk.load(root, 0);
        disk
    }

    fn load(&mut self, from: &Path, directory: usize) {
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let is_directory = entry.file_type().unwrap().is_dir();
            let node = if is_directory { self.new_directory() } else { self.new_file() };
            match node {
                Node::Directory(number) => self.load(&entry.path(), number),
                Node::File(number) => {
                    let content = Arc::new(fs::read(entry.path()).unwrap());
                    self.files[number] =
                        File { durable: Arc::clone(&content), current: content, ..File::default() };
                }
            }
            self.inodes.insert(entry.metadata().unwrap().ino(), node);
            for names in self.directories[directory].both() {
                names.insert(name.clone(), node);
            }
        }
    }

    fn new_file(&mut self) -> Node {
        self.files.push(File::default());
        Node::File(self.files.len() - 1)
    }

    fn new_directory(&mut self) -> Node {
        self.directories.push(Directory::default());
        Node::Directory(self.directories.len() - 1)
    }

    /// Makes the next change.
    pub(crate) fn apply(&mut self, log: &Log, record: &Record) {
        let number = self.records;
        self.records += 1;
        match record.kind {
            Kind::Create | Kind::MakeDirectory => {
                let node = if record.kind == Kind::Create {
                    self.new_file()
                } else {
                    self.new_directory()
                };
                self.inodes.insert(record.inode, node);
                let name = self.name(&record.path);
                self.change_names(NameChange::Add(name, node));
            }
            Kind::Write => {
                let bytes = log.bytes(record).into();
                self.change_file(
                    number,
                    record,
                    Change::Write { offset: at(record.offset), bytes },
                );
            }
            Kind::Truncate => self.change_file(number, record, Change::Truncate(at(record.offset))),
            Kind::Sync => match self.inodes[&record.inode] {
                Node::File(file) if record.failed => self.files[file].fail_to_sync(),
                Node::File(file) => self.files[file].sync(at(record.offset)),
                Node::Directory(_) => panic!("{record:?}"),
            },
            Kind::SyncDirectory if record.failed => (),
            Kind::SyncDirectory => match self.inodes[&record.inode] {
                Node::Directory(directory) => self.sync_names(directory),
                Node::File(_) => panic!("{record:?}"),
            },
            Kind::Rename => {
                let (from, to) = (self.name(&record.path), self.name(&record.other));
                let node = self.directories[from.0].current[&from.1];
                self.change_names(NameChange::Rename(from, to, node));
            }
            Kind::Link => {
                let (from, to) = (self.name(&record.path), self.name(&record.other));
                let node = self.directories[from.0].current[&from.1];
                self.change_names(NameChange::Add(to, node));
            }
            Kind::Unlink | Kind::RemoveDirectory => {
                let name = self.name(&record.path);
                let node = self.directories[name.0].current[&name.1];
                self.change_names(NameChange::Remove(name, node));
            }
        }
    }

    /// The directory and the last part of a path.
    fn name(&self, path: &str) -> (usize, String) {
        let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut directory = 0;
        for part in parents.split('/').filter(|part| !part.is_empty()) {
            match self.directories[directory].current[part] {
                Node::Directory(number) => directory = number,
                Node::File(_) => panic!("{path}: {part} is a file"),
            }
        }
        (directory, name.to_owned())
    }

    fn change_file(&mut self, number: usize, record: &Record, change: Change) {
        let Node::File(file) = self.inodes[&record.inode] else { panic!("{record:?}") };
        let file = &mut self.files[file];
        change.apply_to(Arc::make_mut(&mut file.current));
        file.pending.push((number, change));
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply_to(&mut self.directories, |directory| &mut directory.current);
        self.names.push(change);
    }

    fn sync_names(&mut self, directory: usize) {
        let (durable, pending): (Vec<_>, Vec<_>) =
            self.names.drain(..).partition(|change| change.is_durable_with(directory));
        for change in durable {
            change.apply_to(&mut self.directories, |directory| &mut directory.durable);
        }
        self.names = pending;
    }

    /// The files and directories that the power loss leaves.
    pub(crate) fn after(&self, loss: Loss) -> Image {
        let mut random = Random::new(match loss {
            Loss::Random { seed, .. } => seed,
            _ => 0,
        });
        let directories = match loss {
            Loss::Unsynced | Loss::Names => {
                self.directories.iter().map(|directory| directory.durable.clone()).collect()
            }
            Loss::Nothing | Loss::Content => {
                self.directories.iter().map(|directory| directory.current.clone()).collect()
            }
            Loss::Random { .. } => self.some_names(&mut random),
        };
        let mut image = Image::new();
        self.gather(&directories, 0, "", &mut image, &mut |file| match loss {
            Loss::Unsynced | Loss::Content => Arc::clone(&file.durable),
            Loss::Nothing | Loss::Names => Arc::clone(&file.current),
            Loss::Random { sector, .. } => file.some_content(sector, &mut random),
        });
        image
    }

    /// Returns the durable names and some of the other names. In half of the cases, these are the
    /// first ones, because a file system with a journal keeps the order. Otherwise they are any.
    fn some_names(&self, random: &mut Random) -> Vec<BTreeMap<String, Node>> {
        let mut directories = self.directories.clone();
        let (in_order, kept) = (random.below(2) == 0, random.below(self.names.len() + 1));
        for (number, change) in self.names.iter().enumerate() {
            if if in_order { number < kept } else { random.below(2) == 0 } {
                change.apply_to(&mut directories, |directory| &mut directory.durable);
            }
        }
        directories.into_iter().map(|directory| directory.durable).collect()
    }

    fn gather(
        &self,
        directories: &[BTreeMap<String, Node>],
        directory: usize,
        prefix: &str,
        image: &mut Image,
        content: &mut impl FnMut(&File) -> Arc<Vec<u8>>,
    ) {
        for (name, node) in &directories[directory] {
            let path = format!("{prefix}{name}");
            match node {
                Node::File(file) => {
                    image.insert(path, Some(content(&self.files[*file])));
                }
                Node::Directory(number) => {
                    self.gather(directories, *number, &format!("{path}/"), image, content);
                    image.insert(path, None);
                }
            }
        }
    }
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

impl Directory {
    fn both(&mut self) -> [&mut BTreeMap<String, Node>; 2] {
        [&mut self.durable, &mut self.current]
    }
}

impl NameChange {
    fn is_durable_with(&self, directory: usize) -> bool {
        match self {
            NameChange::Add(name, _)
            | NameChange::Remove(name, _)
            | NameChange::Rename(_, name, _) => name.0 == directory,
        }
    }

    /// Changes only a name that still stands for the node: the changes before this one may be lost.
    fn apply_to(
        &self,
        directories: &mut [Directory],
        names: impl Fn(&mut Directory) -> &mut BTreeMap<String, Node>,
    ) {
        let mut remove = |(directory, name): &(usize, String), node: &Node| {
            let names = names(&mut directories[*directory]);
            if names.get(name) == Some(node) {
                names.remove(name);
            }
        };
        match self {
            NameChange::Remove(name, node) => return remove(name, node),
            NameChange::Rename(from, _, node) => remove(from, node),
            NameChange::Add(..) => (),
        }
        if let NameChange::Add(name, node) | NameChange::Rename(_, name, node) = self {
            names(&mut directories[name.0]).insert(name.1.clone(), *node);
        }
    }
}

impl Change {
    fn apply_to(&self, content: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes } => put(content, *offset, bytes),
            Change::Truncate(length) => content.resize(*length, 0),
        }
    }

    /// The pages that a write touches.
    fn pages(&self) -> impl Iterator<Item = usize> + use<> {
        match self {
            Change::Write { offset, bytes } => offset / PAGE..(offset + bytes.len()).div_ceil(PAGE),
            Change::Truncate(_) => 0..0,
        }
    }
}

fn put(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(bytes);
}

fn page(content: &[u8], number: usize) -> &[u8] {
    let start = (number * PAGE).min(content.len());
    &content[start..(start + PAGE).min(content.len())]
}

impl File {
    /// A sync that succeeded makes durable what was written before it began.
    fn sync(&mut self, begun: usize) {
        let (synced, pending): (Vec<_>, Vec<_>) =
            self.pending.drain(..).partition(|(number, _)| *number < begun);
        let durable = Arc::make_mut(&mut self.durable);
        for (_, change) in synced {
            for number in change.pages() {
                if let Some(page) = self.doubtful.remove(&number) {
                    put(durable, number * PAGE, &page);
                }
            }
            if let Change::Truncate(length) = change {
                self.doubtful.retain(|number, _| number * PAGE < length);
            }
            change.apply_to(durable);
        }
        self.pending = pending;
    }

    fn fail_to_sync(&mut self) {
        let pages: BTreeSet<usize> =
            self.pending.iter().flat_map(|(_, change)| change.pages()).collect();
        for number in pages {
            self.doubtful.insert(number, page(&self.current, number).to_vec());
        }
        self.pending.retain(|(_, change)| matches!(change, Change::Truncate(_)));
    }

    fn some_content(&self, sector: usize, random: &mut Random) -> Arc<Vec<u8>> {
        if self.pending.is_empty() && self.doubtful.is_empty() {
            return Arc::clone(&self.durable);
        }
        let mut content = self.durable.to_vec();
        // In some disks nearly everything is there, in others nearly nothing.
        let share = [1, 5, 9][random.below(3)];
        let mut is_kept = || random.below(10) < share;
        for (number, page) in &self.doubtful {
            for (part, bytes) in page.chunks(sector).enumerate() {
                if is_kept() {
                    put(&mut content, number * PAGE + part * sector, bytes);
                }
            }
        }
        for (_, change) in &self.pending {
            match change {
                Change::Truncate(length) if is_kept() => content.resize(*length, 0),
                Change::Truncate(_) => (),
                Change::Write { offset, bytes } => {
                    let mut done = 0;
                    while done < bytes.len() {
                        let length = (sector - (offset + done) % sector).min(bytes.len() - done);
                        if is_kept() {
                            put(&mut content, offset + done, &bytes[done..done + length]);
                        }
                        done += length;
                    }
                }
            }
        }
        Arc::new(content)
    }
}

/// Writes the files and directories to the empty directory `root`.
pub(crate) fn write(image: &Image, root: &Path) {
    for (path, content) in image {
        let path = root.join(path);
        match content {
            None => fs::DirBuilder::new().mode(0o700).recursive(true).create(path).unwrap(),
            Some(content) => {
                fs::DirBuilder::new()
                    .mode(0o700)
                    .recursive(true)
                    .create(path.parent().unwrap())
                    .unwrap();
                let mut file = fs::OpenOptions::new();
                let mut file = file.write(true).create_new(true).mode(0o600).open(path).unwrap();
                std::io::Write::write_all(&mut file, content).unwrap();
            }
        }
    }
}

/// A checksum of an image.
pub(crate) fn digest(image: &Image) -> [u8; 32] {
    let mut digest = Sha256::new();
    for (path, content) in image {
        digest.update(path.as_bytes());
        let content = content.as_ref().map(|content| content.as_slice());
        digest.update(content.map_or(u64::MAX, |content| content.len() as u64).to_ne_bytes());
        digest.update(content.unwrap_or_default());
    }
    digest.finalize().into()
}
