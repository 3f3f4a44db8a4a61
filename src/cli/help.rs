//! The examples in the help of every command.

use clap::Command;

/// The examples of all commands, which a test finds complete. A group such as `tenant` shows the
/// examples of its commands.
const EXAMPLES: &[&str] = &[
    "tenantdesk serve --create-tenant demo",
    "tenantdesk serve --listen 0.0.0.0:8443 --tls-cert chain.pem --tls-key key.pem",
    "tenantdesk serve --trusted-proxy 10.0.0.5 --log-format json --metrics-listen 127.0.0.1:9180",
    "tenantdesk tenant create acme --trial-until 2027-01-31",
    "tenantdesk tenant list --json",
    "tenantdesk tenant rename acme acme-berlin",
    "tenantdesk tenant suspend acme",
    "tenantdesk tenant activate acme",
    "tenantdesk tenant trial acme 2027-01-31",
    "tenantdesk tenant password acme --stdin < password.txt",
    "tenantdesk tenant delete acme --yes",
    "tenantdesk key create acme --name sync --scope customers:read --scope customers:write",
    "tenantdesk key create acme --name audit --scope read --expires 30d --rate-limit 1000",
    "KEY=$(tenantdesk key create acme --name script --scope all)",
    "tenantdesk key list acme --json",
    "tenantdesk key replace acme 7 --overlap 7d",
    "tenantdesk key limit acme 7 1000",
    "tenantdesk key limit acme 7 default",
    "tenantdesk key rename acme 7 web-shop",
    "tenantdesk key expire acme 7 2027-12-31",
    "tenantdesk key revoke acme 7",
    "tenantdesk key delete acme 7",
    "tenantdesk import acme customers customers.csv --dry-run",
    "tenantdesk import acme hardware inventory.xlsx --sheet Devices",
    "tenantdesk import acme customers customers.csv --update-by customer_number",
    "tenantdesk import acme hardware hardware.jsonl --keep-ids",
    "tenantdesk import acme customers customers.csv --draft-map > german.toml",
    "tenantdesk import acme customers customers.csv --map german.toml --dry-run",
    "tenantdesk fields hardware",
    "tenantdesk fields hardware --csv > hardware.csv",
    "tenantdesk export acme customers > customers.csv",
    "tenantdesk export acme hardware --output hardware.xlsx",
    "tenantdesk changes acme --resource customers --id 7 --last 10 --json",
    "tenantdesk undo acme --key 3 --since 2h --dry-run",
    "tenantdesk undo acme --since 2026-11-20T14:00:00Z",
    "tenantdesk undo acme --request 6f1c3a52-6a0d-4d0c-9a53-2f1c1f0b8e77",
    "tenantdesk backup /var/lib/tenantdesk-backups --keep 14",
    "tenantdesk backup /var/lib/tenantdesk-backups acme",
    "tenantdesk restore /var/lib/tenantdesk-backups",
    "tenantdesk restore /var/lib/tenantdesk-backups acme --force",
    "tenantdesk restore /var/lib/tenantdesk-backups/2026-11-20T19-30-00Z acme --as acme-berlin",
    "tenantdesk check --json",
    "tenantdesk doctor --data-dir /var/lib/tenantdesk --backups /var/lib/tenantdesk-backups",
    "tenantdesk health http://127.0.0.1:8080",
    "tenantdesk openapi > openapi.json",
];

/// Appends the examples to the help of every command below `command`, whose path is `path`.
pub(super) fn add_examples(command: Command, path: &str) -> Command {
    command.mut_subcommands(|child| {
        let path = format!("{path} {}", child.get_name());
        let text = format!("Examples:\n  {}", examples_of(&path).join("\n  "));
        add_examples(child, &path).after_help(text)
    })
}

fn examples_of(path: &str) -> Vec<&'static str> {
    let start = format!("{path} ");
    EXAMPLES.iter().copied().filter(|call| format!("{call} ").contains(&start)).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Arguments;

    /// `command` and all commands below it, each with its path.
    fn commands(command: &Command, path: &str) -> Vec<(String, Command)> {
        let mut found = vec![(path.to_owned(), command.clone())];
        for child in command.get_subcommands() {
            found.extend(commands(child, &format!("{path} {}", child.get_name())));
        }
        found
    }

    #[test]
    fn every_command_has_valid_examples() {
        for (path, _) in commands(&Arguments::command(), "tenantdesk") {
            let calls = examples_of(&path);
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
        for (path, command) in commands(&Arguments::command(), "tenantdesk") {
            undocumented.extend(command.get_about().is_none().then(|| path.clone()));
            let arguments =
                command.get_arguments().filter(|argument| argument.get_help().is_none());
            undocumented.extend(arguments.map(|argument| format!("{path}: {}", argument.get_id())));
        }
        assert!(undocumented.is_empty(), "{undocumented:#?}");
    }
}
