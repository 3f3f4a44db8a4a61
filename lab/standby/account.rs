//! The SSH account that receives the copy.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Output, Stdio};

use crate::machines::{ACCOUNT, Copy, equipped, installed};

/// The first machine's side of the line.
struct Client(Copy);

impl Client {
    /// Runs `sftp` with these commands.
    fn sftp(&self, commands: &str) -> Output {
        let batch = tempfile::NamedTempFile::new().unwrap();
        fs::write(batch.path(), commands).unwrap();
        let mut sftp = self.0.ssh_client("sftp");
        sftp.arg("-b").arg(batch.path()).arg(format!("{ACCOUNT}@127.0.0.1")).output().unwrap()
    }

    /// Runs `ssh` with these options, and a command for the second machine.
    fn ssh(&self, options: &[&str], command: &[&str]) -> Output {
        let mut ssh = self.0.ssh_client("ssh");
        ssh.args(options)
            .arg(format!("{ACCOUNT}@127.0.0.1"))
            .args(command)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

#[test]
fn the_account_can_transfer_the_copy_and_do_nothing_else() {
    if !equipped() || !installed(&["ssh"]) {
        return;
    }
    let client = Client(Copy::to_second_host());
    let here = tempfile::tempdir().unwrap();
    let (sent, fetched) = (here.path().join("sent"), here.path().join("fetched"));
    fs::write(&sent, "change").unwrap();

    let written = client.sftp(&format!("put {} /data/change\n", sent.display()));
    assert!(written.status.success(), "{written:?}");
    let received = client.0.directory().join("change");
    assert_eq!(fs::read_to_string(&received).unwrap(), "change");
    assert_eq!(fs::metadata(&received).unwrap().permissions().mode() & 0o777, 0o600);

    // Files of the second machine.
    for commands in [
        format!("get /etc/passwd {}\n", fetched.display()),
        format!("get {} {}\n", received.display(), fetched.display()),
        format!("put {} {}.2\n", sent.display(), received.display()),
    ] {
        let refused = client.sftp(&commands);
        assert!(!refused.status.success(), "{commands}{refused:?}");
    }
    assert!(!fetched.exists());

    // A command, and a connection to the second machine's own sshd.
    let command = client.ssh(&[], &["echo", "a command ran"]);
    assert!(!command.status.success(), "{command:?}");
    assert!(!String::from_utf8_lossy(&command.stdout).contains("a command ran"), "{command:?}");
    let forward = format!("127.0.0.1:{}", client.0.port());
    let forwarded = client.ssh(&["-W", &forward], &[]);
    assert!(!forwarded.status.success(), "{forwarded:?}");
    assert_eq!(String::from_utf8_lossy(&forwarded.stdout), "", "{forwarded:?}");
}
