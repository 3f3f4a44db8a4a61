//! The examples at the end of the help of every command. A test finds commands without examples.

use clap::Command;

/// The examples of the command itself.
const FIRST: &[&str] = &[
    "tenantdesk serve --create-tenant demo",
    "tenantdesk --data-dir /var/lib/tenantdesk tenant list",
    "tenantdesk doctor",
];

/// The examples of each command, which are also those of the command that it belongs to.
const EXAMPLES: &[&str] = &[
    "tenantdesk serve --create-tenant demo",
    "tenantdesk serve --listen 0.0.0.0:8443 --tls-cert chain.pem --tls-key key.pem",
    "tenantdesk serve --trusted-proxy 10.0.0.5 --log-format json --metrics-listen 127.0.0.1:9180",
    "tenantdesk tenant create acme --trial-until 2027-01-31",
    "tenantdesk tenant create acme",
    "tenantdesk tenant list --json",
    "tenantdesk tenant list",
    "tenantdesk tenant rename acme acme-berlin",
    "tenantdesk tenant suspend acme",
    "tenantdesk tenant activate acme",
    "tenantdesk tenant trial acme 2027-01-31",
    "tenantdesk tenant password acme",
    "tenantdesk tenant password acme --stdin < password.txt",
    "tenantdesk tenant delete acme --yes",
    "tenantdesk key create acme --name website --scope read",
    "tenantdesk key create acme --name sync --scope customers:read --scope customers:write",
    "tenantdesk key create acme --name audit --scope read --expires 30d --rate-limit 1000",
    "KEY=$(tenantdesk key create acme --name script --scope all)",
    "tenantdesk key list acme",
    "tenantdesk key list acme --json",
    "tenantdesk key replace acme 7",
    "tenantdesk key replace acme 7 --overlap 7d",
    "tenantdesk key limit acme 7 1000",
    "tenantdesk key limit acme 7 default",
    "tenantdesk key revoke acme 7",
    "tenantdesk key delete acme 7",
    "tenantdesk import acme customers customers.csv --dry-run",
    "tenantdesk import acme customers customers.csv",
    "tenantdesk import acme customers customers.csv --update-by customer_number --dry-run",
    "tenantdesk import acme hardware hardware.jsonl --keep-ids",
    "tenantdesk export acme customers > customers.csv",
    "tenantdesk export acme hardware --output hardware.jsonl",
    "tenantdesk changes acme",
    "tenantdesk changes acme --resource customers --id 7 --last 10 --json",
    "tenantdesk backup /var/backups/tenantdesk acme",
    "tenantdesk backup /var/backups/tenantdesk --keep 14",
    "tenantdesk restore /var/backups/tenantdesk",
    "tenantdesk restore /var/backups/tenantdesk acme --force",
    "tenantdesk restore /var/backups/tenantdesk acme --as acme-berlin --force",
    "tenantdesk restore /var/backups/tenantdesk/2026-11-20T19-30-00Z",
    "tenantdesk check",
    "tenantdesk check --json",
    "tenantdesk doctor",
    "tenantdesk doctor --data-dir /var/lib/tenantdesk --backups /var/backups/tenantdesk",
    "tenantdesk health",
    "tenantdesk health http://127.0.0.1:8080 --json",
    "tenantdesk openapi > openapi.json",
    "tenantdesk completions bash > /usr/share/bash-completion/completions/tenantdesk",
    "tenantdesk completions zsh > ~/.zfunc/_tenantdesk",
    "tenantdesk manual | man -l -",
    "tenantdesk manual --output /usr/local/share/man/man1",
];

/// Appends the examples to the help of every command.
pub(super) fn add(root: Command) -> Command {
    let exit_codes = "Exit codes: 0 success; 1 failure, with the reason on the last line of \
                      standard error; 2 wrong usage.";
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
    format!("Examples:\n  {}", examples(path).join("\n  "))
}

fn examples(path: &str) -> Vec<&'static str> {
    if path.is_empty() {
        return FIRST.to_vec();
    }
    let start = format!("tenantdesk {path} ");
    EXAMPLES.iter().copied().filter(|call| format!("{call} ").contains(&start)).collect()
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
            let calls = examples(&path);
            assert!(!calls.is_empty(), "none for {path:?}");
            for call in calls {
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
