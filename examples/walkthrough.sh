#!/bin/sh
# A walk through the basics of TenantDesk's interface with curl. It needs a running server and a key with all scopes:
#
#     tenantdesk serve --create-tenant demo          # prints a key
#     TENANTDESK_KEY=tdk_… examples/walkthrough.sh
#
# TENANTDESK_URL is http://127.0.0.1:8080 unless set. With TENANTDESK_TENANT, the tenant's name, it also updates a record by
# an import, on the server's machine: `tenantdesk` is in the path and TENANTDESK_DATA_DIR names the data directory.
# It prints every request with its response, and exits with 1 at the first unexpected one. It deletes all records that it creates.
set -eu

url=${TENANTDESK_URL:-http://127.0.0.1:8080}
key=${TENANTDESK_KEY:?set TENANTDESK_KEY to an API key with all scopes}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

step() { printf '\n# %s\n' "$*"; }

# call STATUS METHOD PATH [BODY] [HEADER]…: sends a request, prints it, and fails unless the response has the status.
call() {
  expected=$1 method=$2 path=$3 body=${4:-}
  shift 3
  [ $# -eq 0 ] || shift
  printf '%s %s %s\n' "$method" "$path" "$body"
  set -- "$@" "Authorization: Bearer $key"
  [ -z "$body" ] || set -- "$@" 'Content-Type: application/json'
  send "$@"
  sed 's/^/  /' "$work/head" | tr -d '\r' | grep -iE '^  (HTTP|location|link|retry-after|allow|x-ratelimit|idempotent)' || true
  [ ! -s "$work/body" ] || printf '  %s\n' "$(cat "$work/body")"
  [ "$status" = "$expected" ] || { printf 'expected %s, but it was %s\n' "$expected" "$status" >&2; exit 1; }
}

# send HEADER…: sends the request.
send() {
  for header; do
    set -- "$@" --header "$header"
    shift
  done
  [ -z "$body" ] || set -- "$@" --data-binary "$body"
  [ "$method" != HEAD ] || set -- "$@" --head
  status=$(curl --silent --show-error --max-time 30 --request "$method" "$@" \
    --dump-header "$work/head" --output "$work/body" --write-out '%{http_code}' "$url$path")
}

# number MEMBER: prints a number from the last response. Use jq in your own scripts.
number() { sed -n "s/^{\"$1\":\([0-9]*\).*/\1/p" "$work/body"; }

# says TEXT: fails unless the last response contains it.
says() { grep -qF -- "$1" "$work/head" "$work/body" || { printf 'the answer does not say %s\n' "$1" >&2; exit 1; }; }

step 'What needs no key'
call 200 GET /healthz
call 200 GET /readyz
call 302 GET /
says /docs

step 'A customer. Fields that are left out have their default, or null.'
call 201 POST /customers.php '{"name": "Müller & Söhne GmbH", "customer_number": "K-1001", "city": "Berlin", "country": "DE"}'
customer=$(number id)
says "ocation: /customers.php?id=$customer"
says '"status":"active"'

step 'One of its employees, a laptop for her, and a printer that belongs to the customer alone'
call 201 POST /employees.php "{\"customer_id\": $customer, \"email\": \"eva@mueller.example\", \"first_name\": \"Eva\", \"department\": \"Lager\"}"
employee=$(number id)
call 201 POST /hardware.php "{\"name\": \"ThinkPad T14\", \"employee_id\": $employee, \"type\": \"laptop\", \"status\": \"in_use\", \"purchase_cost_cents\": 129900}"
hardware=$(number id)
call 201 POST /hardware.php "{\"name\": \"Printer on the first floor\", \"customer_id\": $customer, \"type\": \"printer\"}"
printer=$(number id)

step 'Read one, change some fields of it, read its head alone'
call 200 GET "/customers.php?id=$customer"
call 200 PUT "/customers.php?id=$customer" '{"phone": "+49 30 1234567", "status": "prospect"}'
says '"phone":"+49 30 1234567"'
call 200 HEAD "/customers.php?id=$customer"

step 'Lists: filters, sorting, search, how many there are, and pages'
call 200 GET '/customers.php?status=prospect&country=DE&sort=-created_at&total=true'
says '"total":'
call 200 GET '/customers.php?q=s%C3%B6hne+berlin'
says "\"id\":$customer"
call 200 GET "/employees.php?customer_id=$customer&is_active=true"
call 200 GET '/hardware.php?purchase_date=null&limit=1'
call 200 GET "/hardware.php?customer_id=$customer&include=employee,customer"
says '"employee":{'
says '"customer":{'
says "\"id\":$printer"

step 'The next page is where "Link" and "next_cursor" point'
call 201 POST /customers.php '{"name": "Zweite GmbH"}'
second=$(number id)
call 200 GET '/customers.php?sort=name&limit=1'
cursor=$(sed -n 's/.*"next_cursor":"\([^"]*\)".*/\1/p' "$work/body")
call 200 GET "/customers.php?sort=name&limit=1&cursor=$cursor"

step 'The same request twice, with an idempotency key, takes effect once'
again="Idempotency-Key: $(cat /proc/sys/kernel/random/uuid)"
call 201 POST /customers.php '{"name": "Only once"}' "$again"
once=$(number id)
call 201 POST /customers.php '{"name": "Only once"}' "$again"
[ "$(number id)" = "$once" ] || exit 1
says 'empotent-'
call 422 POST /customers.php '{"name": "Something else"}' "$again"
says idempotency_key_reused

step 'What can be wrong: every code is documented at /docs'
call 422 POST /customers.php '{"name": "", "email": "office@", "status": "gone"}'
says '"fields":["name","email","status"]'
call 400 POST /customers.php '{"name": '
says invalid_json
call 422 POST /employees.php '{"customer_id": 999999999, "email": "nobody@shop.example"}'
says customer_not_found
call 404 GET '/customers.php?id=999999999'
call 400 PUT /customers.php '{"name": "Which?"}'
says missing_id
call 405 PATCH /customers.php
call 400 GET '/customers.php?stauts=active'
says status
call 404 GET /nowhere.php

if [ -n "${TENANTDESK_TENANT:-}" ]; then
  step 'A file brings records up to what it says; what it does not name stays'
  printf 'id,city\n%s,Rostock\n' "$customer" >"$work/customers.csv"
  tenantdesk import "$TENANTDESK_TENANT" customers "$work/customers.csv" --update-by id
  call 200 GET "/customers.php?id=$customer"
  says Rostock
fi

step 'A customer with employees or devices stays; from the leaves to the root all can go'
call 409 DELETE "/customers.php?id=$customer"
says has_dependents
call 204 DELETE "/hardware.php?id=$hardware"
call 204 DELETE "/hardware.php?id=$printer"
call 204 DELETE "/employees.php?id=$employee"
for id in "$customer" "$second" "$once"; do
  call 204 DELETE "/customers.php?id=$id"
done

step 'Below /v1 it is the same, and without a key it is 401'
call 200 GET '/v1/customers.php?limit=1'
key=none
call 401 GET /customers.php

printf '\nAll as it should be.\n'
