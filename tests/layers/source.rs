//! What a source file uses: the paths of its imports and its inline paths, without its unit tests.

use std::collections::BTreeSet;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A source file and what it uses.
pub(crate) struct Source {
    /// Its path below `src`.
    pub file: String,
    /// The path of its module: `["edge", "tls"]`; `["main"]` and `["lib"]` for the roots of the
    /// crates.
    pub module: Vec<String>,
    /// The paths into this crate, without `crate`: `["http", "ApiError"]`.
    pub modules: BTreeSet<Vec<String>>,
    /// The names of what it re-exports: `First` for `pub use a::First`, with the path that it
    /// stands for.
    pub reexports: Vec<(String, Vec<String>)>,
    /// The first segment of every other path.
    pub crates: BTreeSet<String>,
    /// The modules that it declares.
    children: BTreeSet<String>,
}

/// An item's import or an inline path, as written.
struct Use {
    path: Vec<String>,
    is_reexport: bool,
}

impl Source {
    /// Parses the `text` of the file at `path` below `src`.
    pub(crate) fn parse(path: &Path, text: &str) -> Source {
        let tokens: Vec<TokenTree> =
            text.parse::<TokenStream>().expect("Rust").into_iter().collect();
        let mut module: Vec<String> =
            path.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        if module.last().is_some_and(|name| name == "mod") {
            module.pop();
        }
        let file = path.to_str().unwrap().to_owned();
        let children = declared_modules(&tokens);
        let mut source = Source {
            file,
            module,
            modules: BTreeSet::new(),
            reexports: Vec::new(),
            crates: BTreeSet::new(),
            children,
        };
        let mut uses = Vec::new();
        collect(&tokens, &mut uses);
        uses.into_iter().for_each(|found| source.add(found));
        source
    }

    /// The module directly below `src`.
    pub(crate) fn top_module(&self) -> &str {
        self.module.first().unwrap()
    }

    fn add(&mut self, Use { path, is_reexport }: Use) {
        let Some(resolved) = self.resolve(&path) else {
            self.crates.insert(path.into_iter().next().unwrap());
            return;
        };
        if is_reexport {
            self.reexports.push((resolved.last().cloned().unwrap_or_default(), resolved));
        } else {
            self.modules.insert(resolved);
        }
    }

    /// The path from the root of this crate, or nothing for one that begins elsewhere.
    fn resolve(&self, path: &[String]) -> Option<Vec<String>> {
        let (head, rest) = path.split_first()?;
        match head.as_str() {
            "crate" | "tenantdesk" => Some(rest.to_vec()),
            "self" => Some([&self.module, rest].concat()),
            "super" => {
                let levels = path.iter().take_while(|segment| *segment == "super").count();
                let parent = self.module.get(..self.module.len().saturating_sub(levels))?;
                Some([parent, path.get(levels..)?].concat())
            }
            child if self.children.contains(child) => Some([&self.module, path].concat()),
            _ => None,
        }
    }
}

fn is_punctuation(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(found)) if found.as_char() == wanted)
}

fn identifier(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(name)) => Some(name.to_string()),
        _ => None,
    }
}

/// Whether a path separator `::` begins at `at`.
fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    is_punctuation(tokens.get(at), ':') && is_punctuation(tokens.get(at + 1), ':')
}

/// The names in `mod name;`.
fn declared_modules(tokens: &[TokenTree]) -> BTreeSet<String> {
    let declared = tokens.windows(3).filter(|window| {
        identifier(window.first()).is_some_and(|word| word == "mod")
            && is_punctuation(window.get(2), ';')
    });
    declared.filter_map(|window| identifier(window.get(1))).collect()
}

/// Whether the attribute `#[cfg(test)]` begins at `at`.
fn is_test_attribute(tokens: &[TokenTree], at: usize) -> bool {
    let text = |token: &TokenTree| token.to_string().replace(' ', "");
    is_punctuation(tokens.get(at), '#')
        && tokens.get(at + 1).map(text).is_some_and(|text| text == "[cfg(test)]")
}

/// The position after the item that begins at `at`: after its body in braces or its semicolon.
fn end_of_item(tokens: &[TokenTree], at: usize) -> usize {
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        other => is_punctuation(Some(other), ';'),
    };
    tokens.iter().skip(at).position(is_end).map_or(tokens.len(), |length| at + length + 1)
}

/// Adds what `tokens` use to `uses`.
fn collect(tokens: &[TokenTree], uses: &mut Vec<Use>) {
    let mut at = 0;
    while at < tokens.len() {
        if is_test_attribute(tokens, at) {
            at = end_of_item(tokens, at);
        } else if identifier(tokens.get(at)).is_some_and(|word| word == "use") {
            let end = end_of_import(tokens, at);
            let is_reexport = at > 0 && is_visibility(tokens.get(at - 1));
            let mut paths = Vec::new();
            expand(tokens.get(at + 1..end).unwrap_or_default(), &[], &mut paths);
            uses.extend(paths.into_iter().map(|path| Use { path, is_reexport }));
            at = end;
        } else if identifier(tokens.get(at)).is_some() {
            at = inline_path(tokens, at, uses);
        } else {
            if let Some(TokenTree::Group(group)) = tokens.get(at) {
                collect(&group.stream().into_iter().collect::<Vec<_>>(), uses);
            }
            at += 1;
        }
    }
}

/// Whether the token ends `pub` or `pub(…)`.
fn is_visibility(token: Option<&TokenTree>) -> bool {
    match token {
        Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Parenthesis,
        _ => identifier(token).is_some_and(|word| word == "pub"),
    }
}

/// The position of the semicolon of the import that begins at `at`.
fn end_of_import(tokens: &[TokenTree], at: usize) -> usize {
    let length = tokens.iter().skip(at).position(|token| is_punctuation(Some(token), ';'));
    length.map_or(tokens.len(), |length| at + length)
}

/// Adds the path that begins with the identifier at `at`, if it has more than one segment, and
/// returns the position after it.
fn inline_path(tokens: &[TokenTree], at: usize, uses: &mut Vec<Use>) -> usize {
    let mut path: Vec<String> = identifier(tokens.get(at)).into_iter().collect();
    let mut end = at + 1;
    while is_separator(tokens, end)
        && let Some(segment) = identifier(tokens.get(end + 2))
    {
        path.push(segment);
        end += 3;
    }
    if path.len() > 1 {
        uses.push(Use { path, is_reexport: false });
    }
    end
}

/// Adds the paths of a tree of imports, each after `prefix`.
fn expand(tree: &[TokenTree], prefix: &[String], paths: &mut Vec<Vec<String>>) {
    for branch in
        tree.split(|token| is_punctuation(Some(token), ',')).filter(|branch| !branch.is_empty())
    {
        let mut path = prefix.to_vec();
        for token in branch {
            match token {
                TokenTree::Group(group) => {
                    expand(&group.stream().into_iter().collect::<Vec<_>>(), &path, paths)
                }
                TokenTree::Ident(name) if name == "as" => break,
                TokenTree::Ident(name) if name == "self" && !path.is_empty() => (),
                TokenTree::Ident(name) => path.push(name.to_string()),
                _ => (),
            }
        }
        if !path.is_empty() && !matches!(branch.last(), Some(TokenTree::Group(_))) {
            paths.push(path);
        }
    }
}
