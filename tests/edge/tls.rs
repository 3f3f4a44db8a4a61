//! HTTPS, as curl and OpenSSL see it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tenantdesk::config::TlsFiles;

use crate::edge_server::EdgeServer;
use crate::fixture::Fixture;
use crate::support::tls::Certificate;
use crate::support::{Setup, until};

fn make_pair(directory: &Path) -> TlsFiles {
    let made = Certificate::make(directory);
    TlsFiles { certificate: made.certificate, key: made.key }
}

/// The output of curl for `url`, and its errors.
fn curl(url: &str, certificate: &Path, options: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "10", "--cacert"])
        .arg(certificate)
        .args(options)
        .arg(url)
        .output()
        .expect("curl");
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
#[ignore = "needs openssl and curl; `make proof` runs it"]
fn proof_https_is_secure_in_both_versions() {
    let directory = tempfile::tempdir().unwrap();
    let files = make_pair(directory.path());
    let server = EdgeServer::with(|config| config.tls = Some(files.clone()));
    let url = format!("https://{}/a", server.address);
    for version in [&["--tlsv1.3"][..], &["--tls-max", "1.2"]] {
        let output = curl(&url, &files.certificate, version);
        assert!(output.contains("\"secure\":true"), "{output}");
        let head = curl(&url, &files.certificate, &[version, &["-i"]].concat());
        assert!(head.contains("strict-transport-security: max-age=31536000"), "{head}");
    }
    let output =
        curl(&url, &files.certificate, &["--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0"]);
    assert!(!output.contains("secure") && output.starts_with("curl:"), "{output}");
}

#[test]
#[ignore = "needs openssl and curl; `make proof` runs it"]
fn proof_sighup_reads_the_certificate_again_and_a_broken_one_is_not_taken() {
    let fixture = Fixture::with(Setup::without_rate_limit().over_tls());
    let files = fixture.server.certificate().clone();
    let url = format!("https://{}/healthz", fixture.server.address());
    let old = fixture.server.home().join("old.pem");
    fs::copy(&files.certificate, &old).unwrap();
    let kept = fixture.api();
    kept.get("/healthz").is(200);
    let says = |what: &str| until(what, || fixture.server.log().contains(what).then_some(()));

    let other = tempfile::tempdir().unwrap();
    let other = fs::read_to_string(make_pair(other.path()).key).unwrap();
    for (key, reason) in [
        ("no key", "has no private key in PEM format; name a file that has one"),
        (&other, "does not belong to the certificate"),
    ] {
        fs::write(&files.key, key).unwrap();
        fixture.server.signal("HUP");
        says(reason);
        assert!(fixture.server.log().contains("cannot be used; the old one stays"));
        assert!(curl(&url, &old, &[]).contains("ok"));
    }

    Certificate::make(fixture.server.home());
    fixture.server.signal("HUP");
    says("certificate reloaded");
    assert!(curl(&url, &files.certificate, &[]).contains("ok"));
    assert!(curl(&url, &old, &[]).starts_with("curl: (60)"));
    kept.get("/healthz").is(200);
}

#[test]
#[ignore = "needs openssl and curl; `make proof` runs it"]
fn proof_a_silent_handshake_is_cut() {
    let directory = tempfile::tempdir().unwrap();
    let files = make_pair(directory.path());
    let server = EdgeServer::with(|config| {
        config.tls = Some(files);
        config.connections.handshake_timeout = Duration::from_millis(500);
    });
    // A client that waits in vain fails after 30 s.
    assert!(server.connect().is_closed());
}
