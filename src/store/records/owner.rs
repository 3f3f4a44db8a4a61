//! The customer of a device (contract section 2, `customer_id` of hardware). While an employee has
//! the device, the device belongs to the employee's customer. So a device changes its customer with
//! its employee, and when its employee moves to another customer.

use rusqlite::OptionalExtension as _;
use rusqlite::params;
use serde_json::json;

use super::change::{ChangeError, Draft, Rejection, Target};
use super::read::{Reading, Record};
use super::write::Writing;
use crate::model::{EMPLOYEE, HARDWARE, Value};
use crate::store::error::DatabaseError;

const CUSTOMER: &str = "customer_id";

impl Reading<'_> {
    /// Gives the draft of a device with an employee the employee's customer. If the change names
    /// another customer, it is rejected. The stored customer does not count as named, so that a
    /// client may send a whole record back with another employee.
    pub fn set_owner(&self, draft: &mut Draft, names_customer: bool) -> Result<(), ChangeError> {
        if *draft.resource != HARDWARE {
            return Ok(());
        }
        let employee = HARDWARE.value(&draft.values, "employee_id");
        let Some(Value::Integer(employee)) = employee else { return Ok(()) };
        let sql = "SELECT customer_id FROM employees WHERE id = ?";
        let mut statement = self.connection().prepare_cached(sql)?;
        let customer = statement.query_row([employee], |row| row.get(0)).optional()?;
        // The check of the reference fails then.
        let Some(customer) = customer else { return Ok(()) };
        let stored = match &draft.target {
            Target::Stored(record) => HARDWARE.value(&record.values, CUSTOMER),
            _ => None,
        };
        let sent = HARDWARE.value(&draft.values, CUSTOMER);
        let customer = Value::Integer(customer);
        if names_customer && sent != stored && sent != Some(&customer) {
            return Err(Rejection::OtherCustomer(format!(
                "\"{CUSTOMER}\" was {}, but the employee {employee} works at the customer {}. Leave \
                 \"{CUSTOMER}\" out, or change \"employee_id\".",
                json!(sent),
                json!(customer)
            ))
            .into());
        }
        if let Some(owner) = HARDWARE.value_mut(&mut draft.values, CUSTOMER) {
            *owner = customer;
        }
        Ok(())
    }
}

/// The most records that one request changes, with all operations of a batch (contract section 2).
pub(super) const MAX_CHANGED: i64 = 1_000;

impl Writing<'_> {
    /// Rejects the move of an employee with so many devices that the request would change more than
    /// [`MAX_CHANGED`] records.
    pub(super) fn check_move(&self, draft: &Draft) -> Result<(), ChangeError> {
        let Target::Stored(record) = &draft.target else { return Ok(()) };
        let customer = |values| EMPLOYEE.value(values, CUSTOMER);
        if *draft.resource != EMPLOYEE || customer(&record.values) == customer(&draft.values) {
            return Ok(());
        }
        let sql = "SELECT count(*) FROM hardware WHERE employee_id = ?";
        let mut statement = self.connection().prepare_cached(sql)?;
        let devices: i64 = statement.query_row([record.id.0], |row| row.get(0))?;
        let changed = i64::try_from(self.changed()).unwrap_or(i64::MAX);
        if changed.saturating_add(1 + devices) > MAX_CHANGED {
            return Err(Rejection::TooManyDevices { employee: record.id, devices }.into());
        }
        Ok(())
    }

    /// Gives the devices of an employee the employee's new customer. Each gets an entry of its own,
    /// after the entry of the employee and like that one.
    ///
    /// One statement changes all devices. A statement for each would save the changed pages for the
    /// savepoint of the mutation again and again: 5,000 devices took 7 s.
    pub(super) fn move_devices(&self, employee: &Record) -> Result<(), DatabaseError> {
        let Record { id, version, updated_at, values, .. } = employee;
        let customer = EMPLOYEE.value(values, CUSTOMER);
        let entries = "INSERT INTO changes (seq, at, resource, record_id, action, fields, before,
                                            before_version, before_updated_at,
                                            by_key, by_name, by_prefix, request_id)
             SELECT own.seq + row_number() OVER (ORDER BY hardware.id), own.at, 'hardware',
               hardware.id, 'updated', json_array('customer_id'),
               json_object('customer_id', customer_id), hardware.version, hardware.updated_at,
               own.by_key, own.by_name, own.by_prefix, own.request_id
             FROM hardware, changes AS own WHERE employee_id = ? AND own.seq = ?";
        let devices = self.connection().prepare_cached(entries)?.execute([id.0, version.0])?;
        self.changed.set(self.changed() + devices);
        // `changes()` is the number of these entries.
        let state = "UPDATE changes_state SET last_seq = last_seq + changes()";
        self.connection().prepare_cached(state)?.execute([])?;
        let devices = "UPDATE hardware SET customer_id = ?, updated_at = ?, version =
               (SELECT max(seq) FROM changes WHERE resource = 'hardware' AND record_id = hardware.id)
             WHERE employee_id = ?";
        let mut statement = self.connection().prepare_cached(devices)?;
        statement.execute(params![customer, updated_at, id.0])?;
        Ok(())
    }
}
