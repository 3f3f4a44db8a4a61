//! Runs programs with the shim, and reads what it recorded.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use crate::support::DataDir;
use crate::support::server::{Output, run};

/// A change below the root, or a sync. `shim.c` has the same list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Create,
    Write,
    Truncate,
    Sync,
    SyncDirectory,
    Rename,
    Unlink,
    MakeDirectory,
    RemoveDirectory,
    Link,
}

/// One record of the shim.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub kind: Kind,
    /// Whether a sync failed.
    pub failed: bool,
    pub inode: u64,
    /// Of a write its start, of a truncation the new length, of a sync the number of records at its
    /// start.
    pub offset: u64,
    /// Relative to the root.
    pub path: String,
    /// The new name of a rename or a link, relative to the root.
    pub other: String,
    bytes: Range<usize>,
}

/// The changes below the root, in their order.
#[derive(Clone)]
pub(crate) struct Log {
    pub records: Vec<Record>,
    content: Arc<Vec<u8>>,
}

impl Log {
    /// The bytes that a record wrote.
    pub(crate) fn bytes(&self, record: &Record) -> &[u8] {
        &self.content[record.bytes.clone()]
    }
}

/// The calls that a fault concerns. `shim.c` has the same list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Write = 1,
    Sync = 2,
    Open = 4,
    Rename = 8,
    Truncate = 16,
    Remove = 32,
}

/// A fault of the disk: calls of one kind on paths that contain `path` fail with `errno`. A `$`
/// stands for the end of the path.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub call: Call,
    pub path: String,
    pub errno: i32,
    /// The first call that fails, counted from 1.
    pub first: u64,
    /// Whether all later calls fail, too.
    pub lasting: bool,
}

/// The layout of `struct control` in `shim.c`: the offsets of its members.
const FAULT: u64 = 8;
const FAULT_CALLS: u64 = 32;
const FAULT_HITS: u64 = 40;
const FAULT_PATH: u64 = 48;
const CONTROL_SIZE: usize = 304;

/// The shim on one data directory: all commands that run with [`Recorder::variables`] are recorded
/// in one log.
pub(crate) struct Recorder {
    pub data_dir: Arc<DataDir>,
    root: PathBuf,
    /// Outside the root: the shim records neither.
    files: tempfile::TempDir,
    control: File,
}

impl Recorder {
    /// Records what happens in the home of this data directory.
    pub(crate) fn new(data_dir: Arc<DataDir>) -> Recorder {
        let files = temporary_directory();
        fs::write(files.path().join("log"), "").unwrap();
        let control = files.path().join("control");
        fs::write(&control, vec![0; CONTROL_SIZE]).unwrap();
        let control = fs::OpenOptions::new().read(true).write(true).open(control).unwrap();
        let root = data_dir.home().canonicalize().unwrap();
        Recorder { data_dir, root, files, control }
    }

    /// Records what happens in a new data directory.
    pub(crate) fn in_memory() -> Recorder {
        Recorder::new(DataDir::in_home(temporary_directory(), false))
    }

    /// The variables that load the shim.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let variables = [
            ("LD_PRELOAD", text(shim())),
            ("CRASH_ROOT", text(&self.root)),
            ("CRASH_LOG", text(&self.files.path().join("log"))),
            ("CRASH_CONTROL", text(&self.files.path().join("control"))),
        ];
        variables.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// Runs a command of the program on the data directory.
    pub(crate) fn cli(&self, arguments: &[&str]) -> Output {
        let mut command = self.data_dir.command();
        command.envs(self.variables()).arg("--data-dir").arg(self.data_dir.data()).args(arguments);
        run(command, "")
    }

    /// The moment: the number of records so far.
    pub(crate) fn moment(&self) -> usize {
        usize::try_from(self.number(0)).unwrap()
    }

    fn number(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.control.read_exact_at(&mut bytes, offset).unwrap();
        u64::from_ne_bytes(bytes)
    }

    /// Lets calls fail from here on.
    pub(crate) fn set_fault(&self, fault: &Fault) {
        let mut path = [0; CONTROL_SIZE - FAULT_PATH as usize];
        path[..fault.path.len()].copy_from_slice(fault.path.as_bytes());
        self.control.write_all_at(&path, FAULT_PATH).unwrap();
        self.control.write_all_at(&[0; 16], FAULT_CALLS).unwrap();
        let last = if fault.lasting { u64::MAX } else { fault.first };
        let bytes =
            [&fault.errno.to_ne_bytes()[..], &fault.first.to_ne_bytes(), &last.to_ne_bytes()]
                .concat();
        self.control.write_all_at(&bytes, FAULT + 4).unwrap();
        self.control.write_all_at(&(fault.call as u32).to_ne_bytes(), FAULT).unwrap();
    }

    /// Ends the fault. Returns how many calls have failed.
    pub(crate) fn end_fault(&self) -> u64 {
        self.control.write_all_at(&[0; 4], FAULT).unwrap();
        self.fault_hits()
    }

    /// How many calls have failed.
    pub(crate) fn fault_hits(&self) -> u64 {
        self.number(FAULT_HITS)
    }

    /// The recorded changes so far.
    pub(crate) fn log(&self) -> Log {
        let content = fs::read(self.files.path().join("log")).unwrap();
        let root = self.root.to_str().unwrap();
        let (mut records, mut at) = (Vec::new(), 0);
        while at < content.len() {
            records.push(parse(&content, &mut at, root));
        }
        assert_eq!(records.len(), self.moment(), "the log is complete");
        Log { records, content: Arc::new(content) }
    }
}

/// A directory in memory, if there is room. In a container, /dev/shm often has only 64 MiB, which is
/// less than the server leaves free.
pub(crate) fn temporary_directory() -> tempfile::TempDir {
    let memory = "/dev/shm";
    let has_room =
        rustix::fs::statvfs(memory).is_ok_and(|disk| disk.f_bavail * disk.f_frsize > 1 << 30);
    if has_room { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

fn parse(content: &[u8], at: &mut usize, root: &str) -> Record {
    let mut take = |length: usize| {
        *at += length;
        *at - length..*at
    };
    let header = &content[take(40)];
    let small = |from: usize| u32::from_ne_bytes(header[from..from + 4].try_into().unwrap());
    let large = |from: usize| u64::from_ne_bytes(header[from..from + 8].try_into().unwrap());
    let path = take(small(24) as usize);
    let other = take(small(28) as usize);
    let bytes = take(usize::try_from(large(32)).unwrap());
    let text = |range: Range<usize>| String::from_utf8(content[range].to_vec()).unwrap();
    let relative = |path: String| match path.strip_prefix(root) {
        Some(inside) => inside.trim_start_matches('/').to_owned(),
        None => path,
    };
    let kind = match small(0) {
        1 => Kind::Create,
        2 => Kind::Write,
        3 => Kind::Truncate,
        4 => Kind::Sync,
        5 => Kind::SyncDirectory,
        6 => Kind::Rename,
        7 => Kind::Unlink,
        8 => Kind::MakeDirectory,
        9 => Kind::RemoveDirectory,
        10 => Kind::Link,
        unknown => panic!("the shim has written {unknown}"),
    };
    let (failed, inode, offset) = (small(4) != 0, large(8), large(16));
    Record {
        kind,
        failed,
        inode,
        offset,
        path: relative(text(path)),
        other: relative(text(other)),
        bytes,
    }
}

/// The compiled shim.
fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crash/shim.c");
        let compiled = directory.join(format!("shim-{}.so", std::process::id()));
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"])
            .arg(&compiled)
            .arg(source);
        assert!(compiler.status().unwrap().success(), "the shim does not compile");
        // Every run of the tests makes the same library under one name.
        let library = directory.join("shim.so");
        fs::rename(compiled, &library).unwrap();
        library
    })
}
