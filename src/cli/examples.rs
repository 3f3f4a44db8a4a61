//! The examples at the end of the help of every command. A test finds commands without examples.

use clap::Command;

/// For each command, its path and example invocations.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "tenantdesk serve --create-tenant demo",
            "tenantdesk --data-dir /var/lib/tenantdesk tenant list",
            "tenantdesk doctor",
        ],
    ),
    (
        "serve",
        &[
            "tenantdesk serve --create-tenant demo",
            "tenantdesk serve --listen 0.0.0.0:8443 --tls-cert chain.pem --tls-key key.pem",
            "tenantdesk serve --trusted-proxy 10.0.0.5 --log-format json --metrics-listen 127.0.0.1:9180",
        ],
    ),
    (
        "tenant",
        &[
            "tenantdesk tenant create acme --trial-until 2027-01-31",
            "tenantdesk tenant list --json",
        ],
    ),
    (
        "tenant create",
        &[
            "tenantdesk tenant create acme",
            "tenantdesk tenant create acme --trial-until 2027-01-31",
        ],
    ),
    ("tenant list", &["tenantdesk tenant list", "tenantdesk tenant list --json"]),
    ("tenant rename", &["tenantdesk tenant rename acme acme-berlin"]),
    ("tenant suspend", &["tenantdesk tenant suspend acme"]),
    ("tenant activate", &["tenantdesk tenant activate acme"]),
    ("tenant trial", &["tenantdesk tenant trial acme 2027-01-31"]),
    (
        "tenant password",
        &[
            "tenantdesk tenant password acme",
            "tenantdesk tenant password acme --stdin < password.txt",
        ],
    ),
    (
        "tenant delete",
        &["tenantdesk backup /var/backups/tenantdesk acme", "tenantdesk tenant delete acme --yes"],
    ),
    (
        "key",
        &["tenantdesk key create acme --name website --scope read", "tenantdesk key list acme"],
    ),
    (
        "key create",
        &[
            "tenantdesk key create acme --name website --scope read",
            "tenantdesk key create acme --name sync --scope customers:read --scope customers:write",
            "tenantdesk key create acme --name audit --scope read --expires 30d --rate-limit 1000",
            "KEY=$(tenantdesk key create acme --name script --scope all)",
        ],
    ),
    ("key list", &["tenantdesk key list acme", "tenantdesk key list acme --json"]),
    (
        "key replace",
        &["tenantdesk key replace acme 7", "tenantdesk key replace acme 7 --overlap 7d"],
    ),
    ("key limit", &["tenantdesk key limit acme 7 1000", "tenantdesk key limit acme 7 default"]),
    ("key revoke", &["tenantdesk key revoke acme 7"]),
    ("key delete", &["tenantdesk key delete acme 7"]),
    (
        "import",
        &[
            "tenantdesk import acme customers customers.csv --dry-run",
            "tenantdesk import acme customers customers.csv",
            "tenantdesk import acme hardware hardware.jsonl --keep-ids",
        ],
    ),
    (
        "export",
        &[
            "tenantdesk export acme customers > customers.csv",
            "tenantdesk export acme hardware --output hardware.jsonl",
        ],
    ),
    (
        "changes",
        &[
            "tenantdesk changes acme",
            "tenantdesk changes acme --resource customers --id 7 --last 10 --json",
        ],
    ),
    (
        "backup",
        &[
            "tenantdesk backup /var/backups/tenantdesk --keep 14",
            "tenantdesk backup /var/backups/tenantdesk acme",
        ],
    ),
    (
        "restore",
        &[
            "tenantdesk restore /var/backups/tenantdesk",
            "tenantdesk restore /var/backups/tenantdesk acme --force",
            "tenantdesk restore /var/backups/tenantdesk acme --as acme-berlin --force",
            "tenantdesk restore /var/backups/tenantdesk/2026-11-20T19-30-00Z",
        ],
    ),
    ("check", &["tenantdesk check", "tenantdesk check --json"]),
    (
        "doctor",
        &[
            "tenantdesk doctor",
            "tenantdesk --data-dir /var/lib/tenantdesk doctor --backups /var/backups/tenantdesk",
        ],
    ),
    ("openapi", &["tenantdesk openapi > openapi.json"]),
    (
        "completions",
        &[
            "tenantdesk completions bash > /usr/share/bash-completion/completions/tenantdesk",
            "tenantdesk completions zsh > ~/.zfunc/_tenantdesk",
        ],
    ),
    (
        "manual",
        &["tenantdesk manual | man -l -", "tenantdesk manual --output /usr/local/share/man/man1"],
    ),
];

/// Appends the examples to the help of every command.
pub(super) fn add(root: Command) -> Command {
    let exit_codes = "Exit codes: 0 success; 1 failure, with the reason on the last line of standard error; 2 wrong usage.";
    let with_codes = format!("{}\n\n{exit_codes}", text(""));
    add_recursively(root, "").after_help(with_codes)
}

fn add_recursively(command: Command, path: &str) -> Command {
    let names: Vec<String> =
        command.get_subcommands().map(|child| child.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        let path = format!("{path} {name}").trim_start().to_owned();
        command.mut_subcommand(name, |child| add_recursively(child, &path).after_help(text(&path)))
    })
}

fn text(path: &str) -> String {
    let calls =
        EXAMPLES.iter().find(|(command, _)| *command == path).map_or(&[][..], |(_, calls)| calls);
    let lines: Vec<String> = calls.iter().map(|call| format!("  {call}")).collect();
    format!("Examples:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Arguments;

    /// The paths of `command` and all commands below it.
    fn paths(command: &Command, path: &str) -> Vec<String> {
        let mut found = vec![path.to_owned()];
        for child in command.get_subcommands() {
            found.extend(paths(child, format!("{path} {}", child.get_name()).trim_start()));
        }
        found
    }

    #[test]
    fn every_command_has_valid_examples() {
        for path in paths(&Arguments::command(), "") {
            let (_, calls) = EXAMPLES
                .iter()
                .find(|(command, _)| *command == path)
                .unwrap_or_else(|| panic!("none for {path:?}"));
            assert!(
                calls
                    .iter()
                    .any(|call| call.contains(&format!("tenantdesk {path}")) || path.is_empty()),
                "{path}"
            );
            for call in *calls {
                let start = call.find("tenantdesk ").unwrap();
                let words =
                    call[start..].split(['<', '>', '|', ')']).next().unwrap().split_whitespace();
                let parsed = Arguments::command().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{call}: {}", parsed.unwrap_err());
            }
        }
    }

    #[test]
    fn every_command_and_argument_has_a_help_text() {
        let mut undocumented = Vec::new();
        for path in paths(&Arguments::command(), "") {
            let child =
                |command: Command, name: &str| command.find_subcommand(name).unwrap().clone();
            let command = path.split_whitespace().fold(Arguments::command(), child);
            undocumented.extend(command.get_about().is_none().then(|| path.clone()));
            let arguments =
                command.get_arguments().filter(|argument| argument.get_help().is_none());
            undocumented.extend(arguments.map(|argument| format!("{path}: {}", argument.get_id())));
        }
        assert!(undocumented.is_empty(), "{undocumented:#?}");
    }
}
