//! What the columns of a CSV file, or the members of a JSON line, stand for.

use std::borrow::Cow;

use super::{RowFault, shortened};
use crate::model::field::Input;
use crate::model::{Field, Kind, READ_ONLY, Resource};
use crate::suggest;

/// Every column that a resource's file may have.
#[derive(Debug)]
pub struct Layout {
    pub resource: &'static Resource,
    pub slots: Vec<Slot>,
}

/// One column that a file may have.
#[derive(Debug)]
pub struct Slot {
    pub name: Cow<'static, str>,
    pub role: Role,
}

/// What a column is for.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    Id,
    /// Written by an export, ignored by an import.
    Timestamp,
    Field(&'static Field),
    /// `customer_number` for `customer_id`: the record of `target` whose `key` this is.
    StandIn {
        of: &'static Field,
        target: &'static Resource,
        key: &'static Field,
    },
}

impl Role {
    /// The field that the column sets.
    fn sets(self) -> Option<&'static Field> {
        match self {
            Role::Field(field) | Role::StandIn { of: field, .. } => Some(field),
            Role::Id | Role::Timestamp => None,
        }
    }
}

impl Layout {
    pub fn of(resource: &'static Resource) -> Layout {
        let read_only = |name: &'static str| Slot {
            name: name.into(),
            role: if name == "id" { Role::Id } else { Role::Timestamp },
        };
        let fields = resource.fields.iter().map(|field| Slot { name: field.name.into(), role: Role::Field(field) });
        let slots = fields.chain(READ_ONLY.map(read_only)).chain(stand_ins(resource)).collect();
        Layout { resource, slots }
    }

    /// The place of the column `name`.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.slots.iter().position(|slot| slot.name == name)
    }

    /// What is said of a column that there is not, on `line`.
    pub fn unknown(&self, line: u64, name: &str) -> RowFault {
        let known = self.slots.iter().map(|slot| slot.name.as_ref());
        RowFault::new(line, name, "unknown_column", suggest::unknown("column", &shortened(name), known))
    }

    /// The first of two columns, named in this order, that set the same field, with the second.
    pub fn rivals(&self, named: &[usize]) -> Option<(&Slot, &Slot)> {
        let slots: Vec<&Slot> = named.iter().filter_map(|at| self.slots.get(*at)).collect();
        let sets_the_same = |a: &Slot, b: &Slot| match (a.role.sets(), b.role.sets()) {
            (Some(a), Some(b)) => a.name == b.name,
            _ => a.name == b.name,
        };
        slots.iter().enumerate().find_map(|(at, second)| {
            let first = slots.iter().take(at).find(|first| sets_the_same(first, second))?;
            Some((*first, *second))
        })
    }

    /// What is said of a column that comes beside another for the same field.
    pub fn rivalry(line: u64, first: &Slot, second: &Slot) -> RowFault {
        let message = match first.name == second.name {
            true => format!("The column \"{}\" is there twice. Keep one.", second.name),
            false => {
                format!("The columns \"{}\" and \"{}\" name the same reference. Keep one.", first.name, second.name)
            }
        };
        RowFault::new(line, &second.name, "duplicate_column", message)
    }
}

/// For each reference of the resource, the natural keys of what it refers to.
fn stand_ins(resource: &'static Resource) -> impl Iterator<Item = Slot> {
    resource.fields.iter().filter_map(|field| Some((field, Resource::referenced(field)?))).flat_map(|(of, target)| {
        target.natural_keys.iter().filter_map(move |key| {
            let key = target.field(key)?;
            // `customer_number` says already whose it is; `email` does not.
            let says_whose = key.name.strip_prefix(target.name).is_some_and(|rest| rest.starts_with('_'));
            let name = if says_whose { key.name.into() } else { format!("{}_{}", target.name, key.name).into() };
            Some(Slot { name, role: Role::StandIn { of, target, key } })
        })
    })
}

/// A cell as the value that it spells for the field. What it does not spell stays text, and the field refuses it.
pub fn input(role: Role, cell: &str) -> Input<'_> {
    let kind = match role {
        Role::Field(field) => field.kind,
        Role::Id => Kind::Integer,
        Role::Timestamp | Role::StandIn { .. } => return Input::Text(cell.into()),
    };
    match kind {
        Kind::Integer | Kind::Boolean if is_integer(cell) => Input::Number(cell),
        // Spreadsheets write them in capitals.
        Kind::Boolean if cell.eq_ignore_ascii_case("true") => Input::Boolean(true),
        Kind::Boolean if cell.eq_ignore_ascii_case("false") => Input::Boolean(false),
        _ => Input::Text(cell.into()),
    }
}

/// As JSON writes integers: no plus sign, no leading zero.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CUSTOMER, EMPLOYEE, HARDWARE};

    #[test]
    fn natural_keys_stand_in_for_references() {
        let stand_ins = |resource| {
            let layout = Layout::of(resource);
            let names = layout.slots.into_iter().filter(|slot| matches!(slot.role, Role::StandIn { .. }));
            names.map(|slot| slot.name.into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(stand_ins(&CUSTOMER), Vec::<String>::new());
        assert_eq!(stand_ins(&EMPLOYEE), ["customer_number", "customer_email"]);
        assert_eq!(stand_ins(&HARDWARE), ["employee_email"]);
    }

    #[test]
    fn integers_are_written_as_in_json() {
        for good in ["0", "12", "-5", "-0", "99999999999999999999"] {
            assert!(is_integer(good), "{good}");
        }
        for bad in ["", "-", "007", "+5", "1.0", "1e2", " 1", "12 ", "٣"] {
            assert!(!is_integer(bad), "{bad}");
        }
    }
}
