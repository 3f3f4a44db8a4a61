//! Scopes: the permissions of a key (contract section 5).

use std::fmt;

use super::{ALL, Resource};

/// The kind of access. Write does not imply read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// GET and HEAD.
    Read,
    /// POST, PUT and DELETE.
    Write,
}

/// One scope, such as `customers:read`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scope {
    pub resource: &'static Resource,
    pub access: Access,
}

impl Scope {
    /// Returns every scope in the order of contract section 5.
    pub fn all() -> impl Iterator<Item = Scope> {
        ALL.into_iter().flat_map(|resource| {
            [Access::Read, Access::Write].map(|access| Scope { resource, access })
        })
    }

    pub fn parse(text: &str) -> Option<Scope> {
        let (plural, access) = text.split_once(':')?;
        let access = match access {
            "read" => Access::Read,
            "write" => Access::Write,
            _ => return None,
        };
        Resource::find(plural).map(|resource| Scope { resource, access })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = match self.access {
            Access::Read => "read",
            Access::Write => "write",
        };
        write!(f, "{}:{access}", self.resource.plural)
    }
}

/// A set of scopes: one bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u32);

impl Scopes {
    pub fn every() -> Scopes {
        Scope::all().collect()
    }

    pub fn read_only() -> Scopes {
        Scope::all().filter(|scope| scope.access == Access::Read).collect()
    }

    /// Parses `all`, `read` or the name of one scope, the values that the command line and the
    /// panel's form accept.
    pub fn parse(text: &str) -> Option<Scopes> {
        match text {
            "all" => Some(Scopes::every()),
            "read" => Some(Scopes::read_only()),
            one => Scope::parse(one).map(Scopes::from),
        }
    }

    pub fn contains(self, scope: Scope) -> bool {
        self.intersects(scope.into())
    }

    pub fn intersects(self, other: Scopes) -> bool {
        self.0 & other.0 != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub fn union(self, other: Scopes) -> Scopes {
        Scopes(self.0 | other.0)
    }

    /// Returns the names of the scopes in the order of [`Scope::all`].
    pub fn names(self) -> Vec<String> {
        Scope::all().filter(|scope| self.contains(*scope)).map(|scope| scope.to_string()).collect()
    }
}

impl From<Scope> for Scopes {
    fn from(Scope { resource, access }: Scope) -> Scopes {
        Scopes(1 << (2 * resource.kind as u32 + access as u32))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Scopes {
        scopes.into_iter().map(Scopes::from).fold(Scopes::default(), Scopes::union)
    }
}

/// Parses the form in which the registry stores a set: names separated by spaces. Unknown names are
/// ignored.
impl From<&str> for Scopes {
    fn from(stored: &str) -> Scopes {
        stored.split(' ').filter_map(Scope::parse).collect()
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(" "))
    }
}
