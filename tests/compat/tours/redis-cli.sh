# redis-cli as a client for everything: one command a call, both protocols, and the body from standard input.
set -eu
port=$1
cli() { redis-cli -p "$port" "$@"; }
expect() { [ "$2" = "$1" ] || { echo "expected '$1', got '$2'"; exit 1; }; }

expect PONG "$(cli ping)"
id=$(cli addjob cli-tour body 0)
expect 40 "${#id}"
expect 1 "$(cli qlen cli-tour)"
expect "cli-tour
$id
body" "$(cli getjob from cli-tour)"
expect 1 "$(cli ackjob "$id")"
expect "" "$(cli getjob nohang from cli-tour)"
expect "" "$(cli -3 getjob nohang from cli-tour)"
id=$(printf 'from stdin' | cli -X body addjob cli-tour body 0)
expect "from stdin" "$(cli qpeek cli-tour 1 | tail -n 1)"
expect 1 "$(cli -3 fastack "$id")"
cli info jobs | grep -q registered_jobs
cli cluster nodes | grep -q myself
case $(cli ackjob nonsense 2>&1) in *BADID*) ;; *) echo "a bad id was accepted"; exit 1 ;; esac
expect "PONG
PONG" "$(printf 'PING\r\nPING\r\n' | cli)"
printf 'ADDJOB cli-tour one 0\r\nADDJOB cli-tour two 0\r\n' | cli --pipe | grep -q 'errors: 0, replies: 2'
expect 2 "$(cli qlen cli-tour)"
