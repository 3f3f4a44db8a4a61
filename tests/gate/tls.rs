//! HTTPS, as curl and OpenSSL see it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tenantdesk::gate::Tls;
use tenantdesk::service::TlsFiles;

use crate::desk::Desk;
use crate::support::tls::Certificate;

fn make_pair(folder: &Path) -> TlsFiles {
    let made = Certificate::make(folder);
    TlsFiles { certificate: made.certificate, key: made.key }
}

fn curl(desk: &Desk, files: &TlsFiles, version: &str) -> String {
    let told = Command::new("curl")
        .args(["-sS", "--max-time", "10", version, "--cacert"])
        .arg(&files.certificate)
        .arg(format!("https://{}/a", desk.address))
        .output()
        .expect("curl");
    String::from_utf8(told.stdout).unwrap() + &String::from_utf8_lossy(&told.stderr)
}

#[test]
fn https_is_secure_in_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let files = make_pair(folder.path());
    let desk = Desk::with(|options| options.tls = Some(files.clone()));
    assert!(curl(&desk, &files, "--tlsv1.3").contains("\"secure\":true"));
    let older = curl(&desk, &files, "--tls-max=1.2");
    assert!(older.contains("\"secure\":true") || older.contains("--tls-max"), "{older}");
}

#[test]
fn a_silent_handshake_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let files = make_pair(folder.path());
    let desk = Desk::with(|options| {
        options.tls = Some(files);
        options.limits.head_timeout = Duration::from_millis(500);
    });
    let started = Instant::now();
    assert!(desk.connect().is_closed());
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[test]
fn a_broken_new_pair_keeps_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let files = make_pair(folder.path());
    let tls = Tls::load(files.certificate.clone(), files.key.clone()).unwrap();
    assert!(tls.reload().is_ok());
    fs::write(&files.key, "no key").unwrap();
    assert!(tls.reload().unwrap_err().to_string().ends_with("holds no private key in PEM form"));
    fs::remove_file(&files.certificate).unwrap();
    assert!(tls.reload().unwrap_err().to_string().starts_with("cannot read"));
}
