//! Compresses the files of `/docs`, and passes on the commit that `tenantdesk --version` prints.

#[path = "release/commit.rs"]
mod commit;

use std::io::Write as _;
use std::path::Path;
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;

/// The files that `src/reference.rs` serves beside Scalar's script.
const DOCUMENTS: [&str; 9] = [
    "docs/openapi.json",
    "docs/api.md",
    "docs/guide.md",
    "docs/page.html",
    "examples/clients/tenantdesk.py",
    "examples/clients/tenantdesk.mjs",
    "examples/clients/tenantdesk.d.mts",
    "examples/clients/TenantDesk.psm1",
    "examples/clients/tenantdesk.sh",
];

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-env-changed=TENANTDESK_COMMIT");
    println!("cargo::rerun-if-changed=release/commit");
    if let Some(commit) = commit::find() {
        println!("cargo::rustc-env=TENANTDESK_COMMIT={commit}");
    }
    for document in DOCUMENTS {
        println!("cargo::rerun-if-changed={document}");
        compress(document, &fs::read(document)?)?;
    }
    let script = scalar_api_reference::get_asset("scalar.js");
    compress("scalar.js", &script.ok_or(io::ErrorKind::NotFound)?)
}

/// Writes the file with gzip to the directory from which `include_bytes!` takes it.
fn compress(path: &str, content: &[u8]) -> io::Result<()> {
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
    let directory = env::var("OUT_DIR").map_err(io::Error::other)?;
    let file = fs::File::create(Path::new(&directory).join(format!("{name}.gz")))?;
    let mut encoder = GzEncoder::new(file, Compression::best());
    encoder.write_all(content)?;
    encoder.finish()?;
    Ok(())
}
