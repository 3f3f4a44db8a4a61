"""Registers this computer with its user: customer, employee and laptop in one batch. Each is found by its own number, so the
script can run at every start of the computer and makes no doubles.

    TENANTDESK_KEY=tdk_… python3 register.py https://desk.example CUSTOMER_NUMBER EMPLOYEE_NUMBER EMAIL [SERIAL_NUMBER]

The key needs customers:write, employees:write and hardware:write.
"""

import os
import platform
import sys
from pathlib import Path

from tenantdesk import Desk

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
    if is_placeholder(serial_number):
        sys.exit(f"{serial_number!r} is no serial number: many computers have this text. Pass the number of the computer's label.")
    operations = [
        {"method": "POST", "path": "/customers.php?update_by=customer_number",
         "body": {"customer_number": customer_number, "name": f"Customer {customer_number}"}},
        {"method": "POST", "path": "/employees.php?update_by=employee_number",
         "body": {"customer_id": {"result": 0}, "employee_number": employee_number, "email": email}},
        {"method": "POST", "path": "/hardware.php?update_by=serial_number",
         "body": {"employee_id": {"result": 1}, "serial_number": serial_number, "name": platform.node() or "computer",
                  "type": "laptop", "status": "in_use", "custom": {"os": platform.platform()[:500]}}},
    ]
    return [result["body"] for result in desk.batch(operations)]


def serial_number_of_this_computer():
    """Linux shows it to root alone. Other systems need another way; pass it as the last argument."""
    return Path("/sys/class/dmi/id/product_serial").read_text().strip()


if __name__ == "__main__":
    url, customer_number, employee_number, email, *serial_number = sys.argv[1:]
    desk = Desk(url, os.environ["TENANTDESK_KEY"])
    serial_number = serial_number[0] if serial_number else serial_number_of_this_computer()
    for record in register(desk, customer_number, employee_number, email, serial_number):
        print(record["id"], record.get("name") or record["email"])
