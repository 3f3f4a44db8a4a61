"""A Python client, generated from the document that the server serves, through the whole life of a customer, an employee
and a piece of hardware, with typed errors.

    python python_client.py BINARY
"""

import datetime
import os
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from service import Server

TOOLS = Path(sys.executable).parent


def generate(url, folder):
    target = Path(folder) / "generated_tenantdesk"
    # ruff, which the generator calls to tidy its output, is in the same folder.
    outcome = subprocess.run(
        [str(TOOLS / "openapi-python-client"), "generate", "--url", f"{url}/openapi.json",
         "--output-path", str(target), "--meta", "none", "--fail-on-warning"],
        env={**os.environ, "PATH": f"{TOOLS}:{os.environ['PATH']}"}, capture_output=True, text=True,
    )
    if outcome.returncode != 0:
        sys.exit(outcome.stdout + outcome.stderr)
    sys.path.insert(0, folder)


def life(server):
    from generated_tenantdesk import AuthenticatedClient, Client, models
    from generated_tenantdesk.api.customers import create_customer, delete_customer, get_customers, update_customer
    from generated_tenantdesk.api.employees import create_employee, delete_employee, get_employees
    from generated_tenantdesk.api.hardware import create_hardware, delete_hardware, get_hardware, update_hardware
    from generated_tenantdesk.api.service import get_health, get_readiness

    client = AuthenticatedClient(base_url=f"{server.url}/v1", token=server.key)
    stranger = AuthenticatedClient(base_url=server.url, token="tdk_" + "x" * 43)

    # Read and written dates, names and null.
    body = models.CustomerCreate(name="Müller & Söhne", country="DE", customer_since=datetime.date(2019, 4, 1))
    key = str(uuid.uuid4())
    made = create_customer.sync_detailed(client=client, body=body, idempotency_key=key)
    assert made.status_code == 201 and isinstance(made.parsed, models.Customer), made
    customer = made.parsed
    assert customer.status == models.CustomerStatus.ACTIVE and customer.email is None
    assert customer.customer_since == datetime.date(2019, 4, 1) and customer.created_at.utcoffset() is not None
    again = create_customer.sync_detailed(client=client, body=body, idempotency_key=key)
    assert again.parsed == customer and again.headers["Idempotent-Replayed"] == "true"

    one = get_customers.sync(client=client, id=customer.id)
    assert one == customer, one
    changed = update_customer.sync(client=client, id=customer.id, body=models.CustomerUpdate(status=models.CustomerStatus.INACTIVE))
    assert changed.status == models.CustomerStatus.INACTIVE and changed.name == customer.name

    employee = create_employee.sync(client=client, body=models.EmployeeCreate(customer_id=customer.id, email="eva@mueller.example"))
    assert isinstance(employee, models.Employee) and employee.is_active is True
    device = create_hardware.sync(client=client, body=models.HardwareCreate(name="Laptop", employee_id=employee.id, type_=models.HardwareType.LAPTOP))
    assert isinstance(device, models.Hardware) and device.type_ == models.HardwareType.LAPTOP

    # Pages.
    for number in range(5):
        create_hardware.sync(client=client, body=models.HardwareCreate(name=f"Monitor {number}"))
    names, cursor = [], None
    while True:
        more = {"cursor": cursor} if cursor else {}
        page = get_hardware.sync(client=client, limit=2, sort=models.GetHardwareSort.NAME_DESCENDING, total=True, **more)
        assert isinstance(page, models.HardwarePage) and page.total == 6, page
        names += [record.name for record in page.data]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(names) == 6 and names == sorted(names, reverse=True), names
    found = get_employees.sync(client=client, customer_id=customer.id, is_active=True)
    assert [record.id for record in found.data] == [employee.id]

    # Typed errors.
    wrong = create_customer.sync(client=client, body=models.CustomerCreate(name="x"))
    assert isinstance(wrong, models.CustomerUnprocessableError), wrong
    assert wrong.error.code == models.CustomerUnprocessableErrorErrorCode.VALIDATION_FAILED and wrong.error.status == 422
    assert wrong.errors.name.code == models.FieldErrorCode.TOO_SHORT and wrong.fields == ["name"]
    orphan = create_employee.sync(client=client, body=models.EmployeeCreate(customer_id=999, email="a@b.example"))
    assert orphan.error.code == models.EmployeeUnprocessableErrorErrorCode.CUSTOMER_NOT_FOUND, orphan
    reused = create_customer.sync(client=client, body=models.CustomerCreate(name="Another"), idempotency_key=key)
    assert reused.error.code == models.CustomerUnprocessableErrorErrorCode.IDEMPOTENCY_KEY_REUSED, reused
    kept = delete_customer.sync(client=client, id=customer.id)
    assert isinstance(kept, models.ConflictError) and kept.details, kept
    refused = get_customers.sync(client=stranger)
    assert isinstance(refused, models.UnauthorizedError), refused
    assert refused.error.code == models.UnauthorizedErrorErrorCode.INVALID_API_KEY

    # The end, in the order that references ask for.
    freed = update_hardware.sync(client=client, id=device.id, body=models.HardwareUpdate(employee_id=None))
    assert freed.employee_id is None
    for delete, record in ((delete_hardware, device), (delete_employee, employee), (delete_customer, customer)):
        assert delete.sync_detailed(client=client, id=record.id).status_code == 204
    gone = get_customers.sync(client=client, id=customer.id)
    assert isinstance(gone, models.NotFoundError), gone

    # The service's own paths stand at the root alone, and need no key.
    root = Client(base_url=server.url)
    assert get_health.sync(client=root).status == get_readiness.sync(client=root).status == "ok"


with tempfile.TemporaryDirectory() as folder, Server(sys.argv[1]) as server:
    generate(server.url, folder)
    life(server)
print("python client: ok")
