# redis-benchmark: its own PING tests, and any command of ours, pipelined.
set -eu
port=$1
redis-benchmark -p "$port" -n 2000 -c 10 -q -t ping
redis-benchmark -p "$port" -n 2000 -c 10 -P 16 -q addjob benchmark-tour body 0
[ "$(redis-cli -p "$port" qlen benchmark-tour)" = 2000 ] || { echo "not all jobs were added"; exit 1; }
redis-benchmark -p "$port" -n 200 -c 10 -q getjob nohang count 10 from benchmark-tour
[ "$(redis-cli -p "$port" qlen benchmark-tour)" = 0 ] || { echo "not all jobs were fetched"; exit 1; }
