#!/bin/sh
# Functions for scripts that talk to TenantDesk with curl (7.84 or newer) and jq. Copy what you need:
#
#     . ./tenantdesk.sh
#     TENANTDESK_URL=https://desk.example TENANTDESK_KEY=tdk_…
#     shop=$(desk POST /customers.php '{"name": "Shop"}') || exit
#     id=$(echo "$shop" | jq .id)
#     desk_all "/customers.php?city=$(desk_encode 'Bad Homburg')" | jq -r .name
#     desk_change "/customers.php?id=$id" '{notes: "\(.notes // "")Called."}'
#
# A request without an answer, or with 429, 502, 503 or 504, is repeated for TENANTDESK_PATIENCE seconds (120) in all, with doubled
# pauses. A change takes effect once: each has an idempotency key. Set TENANTDESK_IDEMPOTENCY_KEY for one call if your script may be
# killed and repeats the same change within 24 hours.

# desk METHOD PATH [BODY [IF_MATCH]]: prints the response's body. If the response is no success, prints its message on standard error
# and fails with 1. If the record has another entity tag than IF_MATCH, fails with 12.
desk() (
  answer=$(_desk "$@") || exit 1
  _desk_body "$answer"
)

# Prints a text as a value of a query.
desk_encode() { jq -rn --arg text "$1" '$text | @uri'; }

# desk_create_if_absent PATH BODY: creates a record, unless one has the same value in the field that `update_by` in PATH names. Prints
# the id of the record.
desk_create_if_absent() (
  answer=$(_if_none_match='*' _desk POST "$1" "$2") || exit 1
  printf '%s\n' "${answer%
*}" | jq -e '.id // .error.id | select(.)' 2>/dev/null || _desk_body "$answer"
)

# Prints the response's body and, on its own line, its status, the new address of a redirect, and the entity tag.
_desk() (
  body=${3-} if_match=${4-}
  # Without a version, the change would overwrite any.
  [ $# -lt 4 ] || [ -n "$if_match" ] || { echo "The entity tag is empty." >&2 && exit 1; }
  case ${TENANTDESK_URL-} in
    http://* | https://*) ;;
    *) echo "TENANTDESK_URL must begin with https:// or http://" >&2 && exit 1 ;;
  esac
  case $2 in *[[:space:]]*) echo "The path $2 has a space. Write the value with desk_encode." >&2 && exit 1 ;; esac
  set -- --request "$1" "${TENANTDESK_URL%/}$2"
  [ -z "$body" ] || set -- "$@" --header "Content-Type: application/json" --header "Prefer: handling=strict" --data-binary @-
  [ -z "$if_match" ] || set -- "$@" --header "If-Match: $if_match"
  [ -z "${_if_none_match-}" ] || set -- "$@" --header "If-None-Match: $_if_none_match"
  if [ "$2" != GET ]; then
    key=${TENANTDESK_IDEMPOTENCY_KEY:-$(cat /proc/sys/kernel/random/uuid)}
    set -- "$@" --header "Idempotency-Key: $key"
  fi
  directory=$(mktemp -d) || exit 1
  trap 'rm -r "$directory"' EXIT
  end=$(($(date +%s) + ${TENANTDESK_PATIENCE:-120})) pause=1
  while :; do
    left=$((end - $(date +%s)))
    [ "$left" -gt 0 ] || left=1
    [ "$left" -lt 70 ] || left=70
    # curl writes no file for an empty response.
    : >"$directory/body"
    # The key is not an argument, because other users of the machine can read arguments.
    last=$(printf '%s' "$body" | curl --config /dev/fd/3 --silent --show-error --max-time "$left" --output "$directory/body" \
      --write-out '%{http_code} %{redirect_url} %header{etag}\n%header{retry-after}\n%header{x-ratelimit-reset}' "$@" \
      2>"$directory/error" 3<<END
header = "Authorization: Bearer $TENANTDESK_KEY"
END
    ) && fault=0 || fault=$?
    { IFS= read -r last && read -r after && read -r reset; } <<END || :
$last


END
    case $fault:$last in
      # An address or a certificate that is not valid stays so.
      1:* | 3:* | 60:*) break ;;
      0:429* | 0:502* | 0:503* | 0:504*) ;;
      0:*) break ;;
    esac
    now=$(date +%s)
    # A proxy may send a date.
    case $after in '' | *[!0-9]*) after=0 ;; esac
    case $last:$reset in 429*:[0-9]*) [ "$after" -lt $((reset - now)) ] || after=$((reset - now)) ;; esac
    [ "$after" -gt "$pause" ] || after=$pause
    [ $((now + after)) -le "$end" ] || break
    sleep "$after"
    [ "$pause" -ge 30 ] || pause=$((2 * pause))
  done
  [ "$fault" -eq 0 ] || { cat "$directory/error" >&2 && exit 1; }
  cat "$directory/body"
  printf '\n%s' "$last"
)

# Gets the output of _desk. Prints the body, or fails with its message and, if there are several faults, a line for each.
_desk_body() (
  last=${1##*
}
  status=${last%% *} body=${1%
*}
  case $status in
    2??)
      [ -z "$body" ] || printf '%s\n' "$body" | jq -e 'type' >/dev/null 2>&1 || {
        echo "$status unknown: The answer is not JSON. Check the address." >&2
        exit 1
      }
      printf '%s\n' "$body"
      exit 0 ;;
    3??)
      address=${last#* }
      printf '%s redirected: The server redirects to %s. Use this address.\n' "$status" "${address% *}" >&2
      exit 1 ;;
  esac
  printf '%s\n' "$body" | jq -r '
    "\(.error.status) \(.error.code): \(.error.message)",
    ([.operations // [.] | .[] | (if .operation then "operation \(.operation): " else "" end) as $place
      | ((.errors // {}) | to_entries[] | "  \($place)\(.key): \(.value.message)"), (select(.errors | not) | "  \($place)\(.error.message)")]
      | select(length > 1) | .[])' >&2 2>/dev/null || echo "$status unknown: The answer is not JSON." >&2
  [ "$status" -ne 412 ] || exit 12
  exit 1
)

# desk_all PATH: prints every record of a list, page by page, one JSON object in each line.
desk_all() {
  case $1 in *\?*) _sign='&' ;; *) _sign='?' ;; esac
  _page=$(desk GET "$1${_sign}limit=200") || return 1
  while :; do
    printf '%s' "$_page" | jq -c '.data[]' || return 1
    _cursor=$(printf '%s' "$_page" | jq -r '.next_cursor // empty') || return 1
    [ -n "$_cursor" ] || return 0
    _page=$(desk GET "$1${_sign}limit=200&cursor=$_cursor") || return 1
  done
}

# desk_change PATH FILTER: updates the fields that the jq filter returns for the record. If the record was changed meanwhile, reads it
# and tries again after a random pause of up to a second.
desk_change() (
  most=16
  while :; do
    answer=$(_desk GET "$1") || exit 1
    record=$(_desk_body "$answer") || exit 1
    fields=$(printf '%s' "$record" | jq -c "$2") || exit 1
    answer=$(_desk PUT "$1" "$fields" "${answer##* }") || exit 1
    case ${answer##*
} in
      412*) ;;
      *) _desk_body "$answer"; exit ;;
    esac
    sleep "0.$(awk -v most="$most" -v seed="$(od -An -N4 -tu4 /dev/urandom)" 'BEGIN { srand(seed); printf "%03d", rand() * most }')"
    [ "$most" -ge 999 ] || most=$((2 * most))
  done
)

# desk_batch: sends up to 100 operations from standard input, one JSON object in each line. All take effect or none. Prints
# their results.
desk_batch() {
  _results=$(desk POST /batch.php "$(jq -cs '{operations: .}')") || return 1
  printf '%s' "$_results" | jq -c '.results[]'
}

# desk_follow FILE COMMAND [ARGUMENT]…: follows the change log until something fails. New entries are the command's standard
# input, one JSON object in each line. After the command has succeeded, the cursor is stored in FILE, from which the next call
# continues. The first call begins with the changes after its start, so read the lists when FILE exists. After 410
# `changes_gone` remove FILE.
desk_follow() {
  _file=$1 _cursor=$(cat "$1" 2>/dev/null) || _cursor=now
  shift
  while :; do
    _page=$(desk GET "/changes.php?limit=200&cursor=$_cursor") || return 1
    _entries=$(printf '%s' "$_page" | jq -c '.data[]') || return 1
    [ -z "$_entries" ] || printf '%s\n' "$_entries" | "$@" || return 1
    _cursor=$(printf '%s' "$_page" | jq -er .next_cursor) || return 1
    printf '%s\n' "$_cursor" > "$_file.new" && mv "$_file.new" "$_file" || return 1
    [ "$(printf '%s' "$_page" | jq .more)" = true ] || sleep "${TENANTDESK_WAIT:-5}"
  done
}
