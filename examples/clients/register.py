"""Registers this computer with its user: customer, employee and laptop.

    TENANTDESK_KEY=tdk_… python3 register.py https://desk.example CUSTOMER_NUMBER EMPLOYEE_NUMBER EMAIL [SERIAL_NUMBER]

The script creates each record only if there is none with its number. So it can run at every start of the computer. Two customers may
have the same employee number. A record that exists keeps what people typed: the script sets only `custom.os` of the laptop.

The key needs the write scopes of customers, employees and hardware, and `employees:read`.
"""

import argparse
import os
import platform
import sys
from pathlib import Path

from tenantdesk import Desk, DeskError

# What firmware says if nobody has entered a serial number. Many computers say the same, so they would become one record.
PLACEHOLDERS = {
    "chassisserialnumber", "default", "defaultstring", "empty", "invalid", "na", "no", "none", "notapplicable", "notavailable",
    "notspecified", "null", "oem", "serialnumber", "systemserialnumber", "tobefilledbyoem", "undefined", "unknown",
}


def is_placeholder(serial_number):
    """Ignores case, spaces and punctuation. `00000000` and `123456789` are placeholders, too."""
    text = "".join(letter for letter in serial_number.lower() if letter.isalnum())
    return text in PLACEHOLDERS or text in "01234567890" or len(set(text)) == 1


def register(desk, customer_number, employee_number, email, serial_number):
    """Returns the resource and the id of each of the three records, and whether it is new."""
    if is_placeholder(serial_number):
        sys.exit(f"{serial_number!r} is no serial number: many computers have this text. Pass the number of the computer's label.")
    custom = {"os": platform.platform()[:500]}
    records = []

    def create(resource, by, **fields):
        id, is_new = desk.create_if_absent(resource, by, **fields)
        records.append((resource, id, is_new))
        return id, is_new

    customer, _ = create("customers", "customer_number", customer_number=customer_number, name=f"Customer {customer_number}")
    # `create_if_absent` would find another customer's employee with this number.
    found = desk.page("employees", customer_id=customer, employee_number=employee_number)["data"]
    employee = found[0] if found else desk.create("employees", employee_number=employee_number, email=email, customer_id=customer)
    records.append(("employees", employee["id"], not found))
    laptop, is_new = create(
        "hardware", "serial_number", serial_number=serial_number, name=platform.node() or "computer", type="laptop", status="in_use",
        customer_id=customer, employee_id=employee["id"], custom=custom)
    if not is_new:
        desk.update("hardware", laptop, custom=custom)
    return records


def serial_number_of_this_computer():
    """Linux shows it to root alone. Other systems need another way; pass it as the last argument."""
    try:
        return Path("/sys/class/dmi/id/product_serial").read_text().strip()
    except OSError as error:
        sys.exit(f"The serial number of this computer cannot be read: {error}. Run the script as root, or pass the serial number.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ["url", "customer_number", "employee_number", "email"]:
        parser.add_argument(name, metavar=name.upper())
    parser.add_argument("serial_number", metavar="SERIAL_NUMBER", nargs="?")
    given = parser.parse_args()
    key = os.environ.get("TENANTDESK_KEY")
    if not key:
        parser.error("TENANTDESK_KEY must have the API key")
    if not given.url.startswith(("http://", "https://")):
        parser.error("URL must begin with https:// or http://")
    serial_number = given.serial_number or serial_number_of_this_computer()
    try:
        records = register(Desk(given.url, key), given.customer_number, given.employee_number, given.email, serial_number)
    except (DeskError, OSError) as error:
        sys.exit(str(error))
    for resource, id, is_new in records:
        print("created" if is_new else "found", resource, id)


if __name__ == "__main__":
    main()
