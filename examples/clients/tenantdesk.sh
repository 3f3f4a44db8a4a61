#!/bin/sh
# Functions for scripts that talk to TenantDesk with curl and jq. Copy what you need:
#
#     . ./tenantdesk.sh
#     TENANTDESK_URL=https://desk.example TENANTDESK_KEY=tdk_…
#     id=$(desk POST /customers.php '{"name": "Shop"}' | jq .id)
#     desk_all '/customers.php?status=active' | jq -r .name

# desk METHOD PATH [BODY]: prints the answer's body; fails, with the message on standard error, where it is an error. A
# request that changes something carries an idempotency key, so that curl may repeat it: it takes effect once.
desk() (
  set -- --request "$1" "$TENANTDESK_URL$2" ${3:+--header "Content-Type: application/json" --data-binary "$3"}
  [ "$2" = GET ] || set -- "$@" --header "Idempotency-Key: $(cat /proc/sys/kernel/random/uuid)"
  # The key is not among the arguments, where other users of the machine could read it.
  answer=$(printf 'header = "Authorization: Bearer %s"\n' "$TENANTDESK_KEY" |
    curl --config - --silent --show-error --max-time 70 --retry 5 --retry-connrefused --write-out '\n%{http_code}' "$@") ||
    exit 1
  status=${answer##*
}
  body=${answer%
*}
  if [ "$status" -ge 400 ]; then
    printf '%s\n' "$body" | jq -r '"\(.error.status) \(.error.code): \(.error.message)"' >&2
    exit 1
  fi
  printf '%s\n' "$body"
)

# desk_all PATH: every record of a list, one JSON object a line, page by page.
desk_all() {
  case $1 in *\?*) _sign='&' ;; *) _sign='?' ;; esac
  _page=$(desk GET "$1${_sign}limit=200") || return 1
  while :; do
    printf '%s' "$_page" | jq -c '.data[]'
    _cursor=$(printf '%s' "$_page" | jq -r '.next_cursor // empty')
    [ -n "$_cursor" ] || return 0
    _page=$(desk GET "$1${_sign}limit=200&cursor=$_cursor") || return 1
  done
}
