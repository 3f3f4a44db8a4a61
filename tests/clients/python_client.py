"""A Python client, generated from the document that the server serves, through the whole life of a customer, an employee
and a piece of hardware, with typed errors; then a batch and the change log.

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


def generate(url, directory):
    target = Path(directory) / "generated_tenantdesk"
    # ruff, which the generator calls to tidy its output, is in the same directory.
    outcome = subprocess.run(
        [str(TOOLS / "openapi-python-client"), "generate", "--url", f"{url}/openapi.json",
         "--output-path", str(target), "--meta", "none", "--fail-on-warning"],
        env={**os.environ, "PATH": f"{TOOLS}:{os.environ['PATH']}"}, capture_output=True, text=True,
    )
    if outcome.returncode != 0:
        sys.exit(outcome.stdout + outcome.stderr)
    sys.path.insert(0, directory)


def life(server):
    from generated_tenantdesk import AuthenticatedClient, models
    from generated_tenantdesk.api.customers import create_customer, delete_customer, get_customers, update_customer
    from generated_tenantdesk.api.employees import create_employee, delete_employee, get_employees
    from generated_tenantdesk.api.hardware import create_hardware, delete_hardware, get_hardware, update_hardware

    client = AuthenticatedClient(base_url=f"{server.url}/v1", token=server.key)

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
    assert isinstance(wrong, models.Failure), wrong
    assert wrong.error.code == "validation_failed" and wrong.error.status == 422
    assert wrong.errors["name"].code == "too_short" and wrong.fields == ["name"]
    kept = delete_customer.sync(client=client, id=customer.id)
    assert isinstance(kept, models.Failure) and kept.error.code == "has_dependents" and kept.details, kept

    # The end, in the order that references require.
    freed = update_hardware.sync(client=client, id=device.id, body=models.HardwareUpdate(employee_id=None))
    assert freed.employee_id is None
    for delete, record in ((delete_hardware, device), (delete_employee, employee), (delete_customer, customer)):
        assert delete.sync_detailed(client=client, id=record.id).status_code == 204
    gone = get_customers.sync(client=client, id=customer.id)
    assert isinstance(gone, models.Failure) and gone.error.code == "not_found", gone


def batch_and_changes(server):
    from generated_tenantdesk import AuthenticatedClient, models
    from generated_tenantdesk.api.batch import run_batch
    from generated_tenantdesk.api.changes import list_changes

    client = AuthenticatedClient(base_url=f"{server.url}/v1", token=server.key)
    now = list_changes.sync(client=client, cursor="now")
    assert isinstance(now, models.ChangePage) and now.data == [] and now.more is False, now

    def post(path, body):
        body = models.BatchOperationBodyType0.from_dict(body)
        return models.BatchOperation(method=models.BatchOperationMethod.POST, path=path, body=body)

    operations = [
        post("/customers.php", {"name": "Batch GmbH"}),
        post("/employees.php", {"customer_id": {"result": 0}, "email": "eva@batch.example"}),
    ]
    done = run_batch.sync(client=client, body=models.Batch(operations=operations), idempotency_key=str(uuid.uuid4()))
    customer, employee = (result.body for result in done.results)
    assert isinstance(customer, models.Customer) and isinstance(employee, models.Employee), done
    assert employee.customer_id == customer.id and done.results[0].location == f"/customers.php?id={customer.id}", done
    failed = run_batch.sync(client=client, body=models.Batch(operations=[*operations, post("/customers.php", {"name": ""})]))
    assert failed.error.code == "validation_failed" and failed.operation == 2, failed

    page = list_changes.sync(client=client, cursor=now.next_cursor)
    of = models.ChangeResource
    seen = [(entry.resource, entry.id, entry.action) for entry in page.data]
    assert seen == [(of.CUSTOMERS, customer.id, "created"), (of.EMPLOYEES, employee.id, "created")], page
    last = page.data[-1]
    assert last.by.kind == "key" and last.by.name == "clients" and last.record == employee, last
    assert done.results[1].etag == f'"{last.seq}"', last


def own_numbers_and_fields(server):
    from generated_tenantdesk import AuthenticatedClient, models
    from generated_tenantdesk.api.hardware import create_hardware, get_hardware

    client = AuthenticatedClient(base_url=server.url, token=server.key)
    custom = models.HardwareCreateCustomType0.from_dict({"room": "2.14"})
    body = models.HardwareCreate(name="Printer", serial_number="PR-1", custom=custom)
    sent = [
        create_hardware.sync_detailed(client=client, body=body, update_by=models.CreateHardwareUpdateBy.SERIAL_NUMBER)
        for _ in range(2)
    ]
    assert [answer.status_code for answer in sent] == [201, 200] and sent[0].parsed == sent[1].parsed, sent
    found = get_hardware.sync(client=client, custom=models.GetHardwareCustom.from_dict({"custom.room": "2.14"}))
    assert found.data == [sent[1].parsed], found


with tempfile.TemporaryDirectory() as directory, Server(sys.argv[1]) as server:
    generate(server.url, directory)
    for part in (life, batch_and_changes, own_numbers_and_fields):
        part(server)
print("python client: ok")
