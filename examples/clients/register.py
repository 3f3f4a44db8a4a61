"""Registers this computer with its user: customer, employee and laptop.

    TENANTDESK_KEY=tdk_… python3 register.py https://desk.example CUSTOMER_NUMBER EMPLOYEE_NUMBER EMAIL [SERIAL_NUMBER]

The script finds each record by its own number, and creates the missing ones in one batch. So it can run at every start of the
computer. A record that exists keeps what people typed: the script sets only `custom.os` of the laptop.

The key needs the read and the write scope of customers, employees and hardware.
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


def find(desk, resource, field, number):
    """Returns the record with this number, or None."""
    found = desk.page(resource, **{field: number})["data"]
    if len(found) > 1:
        sys.exit(f"{len(found)} {resource} have the {field} {number!r}. Correct them first.")
    return found[0] if found else None


def register(desk, customer_number, employee_number, email, serial_number):
    """Returns the results of the batch, or an empty list if everything is there."""
    if is_placeholder(serial_number):
        sys.exit(f"{serial_number!r} is no serial number: many computers have this text. Pass the number of the computer's label.")
    operations = []

    def create(resource, field, body):
        # Another computer may create the same customer at the same moment. `update_by` then makes no double of it.
        operations.append({"method": "POST", "path": f"/{resource}.php?update_by={field}", "body": body})
        return {"result": len(operations) - 1}

    customer = find(desk, "customers", "customer_number", customer_number)
    employee = find(desk, "employees", "employee_number", employee_number)
    laptop = find(desk, "hardware", "serial_number", serial_number)
    custom = {"os": platform.platform()[:500]}
    customer_id = customer["id"] if customer else create(
        "customers", "customer_number", {"customer_number": customer_number, "name": f"Customer {customer_number}"})
    employee_id = employee["id"] if employee else create(
        "employees", "employee_number", {"customer_id": customer_id, "employee_number": employee_number, "email": email})
    if not laptop:
        create("hardware", "serial_number",
               {"employee_id": employee_id, "serial_number": serial_number, "name": platform.node() or "computer", "type": "laptop",
                "status": "in_use", "custom": custom})
    elif laptop["custom"].get("os") != custom["os"]:
        operations.append({"method": "PUT", "path": f"/hardware.php?id={laptop['id']}", "body": {"custom": custom}})
    return desk.batch(operations) if operations else []


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
        results = register(Desk(given.url, key), given.customer_number, given.employee_number, given.email, serial_number)
    except (DeskError, OSError) as error:
        sys.exit(str(error))
    for result in results:
        record = result["body"]
        print("created" if result["status"] == 201 else "changed", record["id"], record.get("name") or record["email"])
    if not results:
        print("nothing to do")


if __name__ == "__main__":
    main()
